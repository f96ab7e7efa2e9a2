module nexus.internal/agents

go 1.26.0
