package file

import (
	"io"

	"nexus.internal/child/tool"
)

// Tools returns read_file, write_file and list_directory on dir.
func Tools(dir string) ([]tool.Tool, io.Closer, error) { return nil, nil, nil }
