package cli

import (
	"context"
	"runtime"

	"nexus.internal/cmd/internal/version"
	"nexus.internal/protocol"
)

// printVersion prints what the program is.
func printVersion(_ context.Context, a *App, _ []string) error {
	said := struct {
		Version         string `json:"version"`
		Commit          string `json:"commit,omitzero"` // of the source, where that is known
		Go              string `json:"go"`
		OS              string `json:"os"`   // as Go calls it
		Arch            string `json:"arch"` // likewise
		ProtocolVersion int    `json:"protocol_version"`
	}{a.Version, version.Commit(), runtime.Version(), runtime.GOOS, runtime.GOARCH, protocol.Version}
	return a.done(said, nil, "%s version %s\n", a.Name, a.Version)
}
