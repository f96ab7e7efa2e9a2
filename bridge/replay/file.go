package replay

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"nexus.internal/protocol/safefile"
)

// Open returns a Cache that also knows what was used by keys for less, in earlier
// lives of the server: the file at path has a line for each, when it is over in
// microseconds since 1970 and the text. A line that was cut off by the end of a server
// was not used. One process uses the file at a time. What is used is used at all machines of a cluster if agreed is not nil. Close it.
func Open(path string, agreed Agreed) (*Cache, error) {
	c := &Cache{path: path, agreed: agreed}
	if err := c.load(time.Now()); err != nil {
		return nil, fmt.Errorf("read the signatures used, %s: %w", path, err)
	}
	return c, nil
}

func (c *Cache) load(now time.Time) error {
	file, err := safefile.Open(c.path, os.O_RDONLY)
	switch {
	case errors.Is(err, os.ErrNotExist):
	case err != nil:
		return err
	default:
		defer file.Close()
		in := bufio.NewScanner(file)
		for in.Scan() {
			at, text, _ := strings.Cut(in.Text(), " ")
			micros, err := strconv.ParseInt(at, 10, 64)
			if until := time.UnixMicro(micros); err == nil && text != "" && !until.Before(now) {
				c.remember(text, use{until: until, key: earlier})
			}
		}
		if err := in.Err(); err != nil {
			return err
		}
	}
	return c.rewrite()
}

// rewrite puts what still counts into a new file. mu is held, or nobody else has c.
func (c *Cache) rewrite() error {
	lines := 0
	file, err := safefile.Renew(c.path, func(file *os.File) error {
		out := bufio.NewWriter(file)
		for text, u := range c.used {
			if u.key != full {
				lines++
				_, _ = out.Write(lineOf(text, u.until)) // Flush tells
			}
		}
		return out.Flush()
	})
	if err != nil {
		return err
	}
	if c.file != nil {
		_ = c.file.Close()
	}
	c.file, c.lines = file, lines
	return nil
}

func lineOf(text string, until time.Time) []byte {
	return append(strconv.AppendInt(nil, until.UnixMicro(), 10), " "+text+"\n"...)
}

// keep writes what is used from now on, so that a later server knows it. mu is held.
func (c *Cache) keep(texts []string, until time.Time) error {
	if c.path == "" {
		return nil
	}
	if c.lines+len(texts) > 2*MaxUsed {
		if err := c.rewrite(); err != nil {
			return fmt.Errorf("write the signatures used: %w", err)
		}
	}
	var lines []byte
	for _, text := range texts {
		lines = append(lines, lineOf(text, until)...)
	}
	if _, err := c.file.Write(lines); err != nil {
		// Whatever of it was written must not join the next line.
		return errors.Join(fmt.Errorf("write the signatures used: %w", err), c.rewrite())
	}
	c.lines += len(texts)
	return nil
}

// Close closes the file, if there is one.
func (c *Cache) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.file == nil {
		return nil
	}
	return c.file.Close()
}
