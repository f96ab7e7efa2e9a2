package proc

import "go.uber.org/zap"

// LogStderr logs text as what a child has written to its stderr.
func LogStderr(log *zap.Logger, text string) { newTail(log, 0).write([]byte(text)) }
