// Agents of npm under nexus-child; its path lets it use what only cmd may.
module nexus.internal/cmd/agents

go 1.26.0

replace nexus.internal => ../..

require nexus.internal v0.0.0-00010101000000-000000000000

require (
	github.com/go-json-experiment/json v0.0.0-20260820222146-c27c302e5fc3 // indirect
	github.com/tidwall/gjson v1.20.0 // indirect
	github.com/tidwall/match v1.2.0 // indirect
	github.com/tidwall/pretty v1.2.2 // indirect
	go.uber.org/multierr v1.11.0 // indirect
	go.uber.org/zap v1.28.0 // indirect
	golang.org/x/sys v0.50.0 // indirect
)
