package logsink

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"
	"unicode"

	"go.uber.org/zap"
	"go.uber.org/zap/buffer"
	"go.uber.org/zap/zapcore"
)

// Flags are --log-level and --log-format as they were given, and mean the same to
// each program (SPEC §6.6). They implement pflag.Value.
type (
	// Level is debug, info, warn or error; the zero value is info.
	Level struct{ zapcore.Level }
	// Format is auto, text or json; the zero value is auto: text on a terminal, else
	// json.
	Format string
)

// The formats.
const (
	Auto Format = "auto"
	Text Format = "text"
	JSON Format = "json"
)

func (l *Level) Set(text string) error {
	for _, level := range []zapcore.Level{zapcore.DebugLevel, zapcore.InfoLevel, zapcore.WarnLevel, zapcore.ErrorLevel} {
		if text == level.String() {
			l.Level = level
			return nil
		}
	}
	return fmt.Errorf("want debug, info, warn or error, not %q", text)
}

func (*Level) Type() string { return "level" }

func (f *Format) String() string {
	if *f == "" {
		return string(Auto)
	}
	return string(*f)
}

func (f *Format) Set(text string) error {
	switch Format(text) {
	case Auto, Text, JSON:
		*f = Format(text)
		return nil
	}
	return fmt.Errorf("want auto, text or json, not %q", text)
}

func (*Format) Type() string { return "format" }

// encoder is what writes lines of a format to w.
func (f Format) encoder(w io.Writer) zapcore.Encoder {
	c := zapcore.EncoderConfig{
		TimeKey: "timestamp", LevelKey: "level", NameKey: "logger", MessageKey: "message", StacktraceKey: "stack",
		EncodeTime: zapcore.RFC3339NanoTimeEncoder, EncodeLevel: zapcore.LowercaseLevelEncoder, EncodeDuration: zapcore.MillisDurationEncoder,
	}
	if f == Text || f != JSON && terminal(w) {
		c.EncodeTime, c.EncodeLevel = zapcore.TimeEncoderOfLayout("15:04:05.000"), zapcore.CapitalLevelEncoder
		c.ConsoleSeparator = " "
		return visible{zapcore.NewConsoleEncoder(c)}
	}
	return zapcore.NewJSONEncoder(c)
}

// visible escapes what a terminal would act on or hide: clients and agents wrote some of it.
type visible struct{ zapcore.Encoder }

func (v visible) Clone() zapcore.Encoder { return visible{v.Encoder.Clone()} }

func (v visible) EncodeEntry(e zapcore.Entry, fields []zap.Field) (*buffer.Buffer, error) {
	line, err := v.Encoder.EncodeEntry(e, fields)
	if err != nil {
		return nil, err
	}
	if bytes.ContainsFunc(line.Bytes(), hidden) {
		text := line.String()
		line.Reset()
		for _, r := range text {
			if hidden(r) {
				line.AppendString(strings.Trim(strconv.QuoteRuneToASCII(r), "'"))
			} else {
				line.AppendString(string(r))
			}
		}
	}
	return line, nil
}

func hidden(r rune) bool { return !unicode.IsPrint(r) && r != '\n' && r != '\t' }

// terminal reports whether w is a character device: a terminal, or one that it does
// not matter to, like /dev/null.
func terminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	if !ok {
		return false
	}
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}

// lost makes the line that tells of n others that were lost.
func lost(encoder zapcore.Encoder, n int) []byte {
	line, err := encoder.Clone().EncodeEntry(zapcore.Entry{
		Level: zapcore.WarnLevel, Time: time.Now(), Message: "stderr was not read: log lines were lost",
	}, []zap.Field{zap.Dict("data", zap.Int("lost", n))})
	if err != nil {
		return nil // an int can be written
	}
	defer line.Free()
	return bytes.Clone(line.Bytes())
}
