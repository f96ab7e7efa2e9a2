package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"
)

// Sessions that are listed: how many there are, and how many a page has.
const (
	savedSessions = 10_000
	pageSessions  = 50
)

// listing is a page of many saved sessions, through the façade. Its floor reads
// the same directory and asks for the size and time of each file, as the first list does.
func (b *bench) listing(ctx context.Context, s *server) ([]row, error) {
	dir := filepath.Join(s.home, "sessions")
	if err := b.fill(dir, savedSessions); err != nil {
		return nil, err
	}
	list := func(offset int) *series {
		params := fmt.Sprintf(`{"offset":%d,"limit":%d}`, offset, pageSessions)
		return of(func() (float64, error) {
			return p50(ctx, 3, func() error {
				var page struct {
					Total    int        `json:"total"`
					Sessions []struct{} `json:"sessions"`
				}
				err := s.call(ctx, "/", "list_sessions", params, &page)
				if err == nil && (page.Total != savedSessions || len(page.Sessions) != pageSessions) {
					err = fmt.Errorf("listed %d of %d sessions", len(page.Sessions), page.Total)
				}
				return err
			})
		})
	}
	bare := of(func() (float64, error) { return p50(ctx, 3, func() error { return stats(dir) }) })
	page := fmt.Sprintf("list_sessions, %d of %d sessions, of ", pageSessions, savedSessions)
	return measure(ctx, b.size.rounds,
		figure{page + strconv.Itoa(crashMessages) + " messages: p50", list(0), bare, "readdir, stat", seconds, ratioAtMost(0.5), p50th},
		figure{page + "2 messages: p50", list(savedSessions / 2), bare, "readdir, stat", seconds, ratioAtMost(0.5), p50th},
	)
}

// fill saves that many conversations: those of the first page are long, and all
// others short.
func (b *bench) fill(dir string, sessions int) error {
	short, failed := b.conversation("listed-short", 2)
	long, err := b.conversation("listed-long", crashMessages)
	if err := errors.Join(err, failed, os.MkdirAll(dir, 0o700)); err != nil {
		return err
	}
	now := time.Now()
	for i := range sessions {
		data := short
		if i < pageSessions {
			data = long
		}
		path := filepath.Join(dir, fmt.Sprintf("saved-%05d.jsonl", i))
		at := now.Add(-time.Duration(i) * time.Second)
		if err := errors.Join(os.WriteFile(path, data, 0o600), os.Chtimes(path, at, at)); err != nil {
			return err
		}
	}
	return nil
}

// stats is the least that a list in order of time needs.
func stats(dir string) error {
	entries, err := os.ReadDir(dir)
	for _, entry := range entries {
		_, failed := entry.Info()
		err = errors.Join(err, failed)
	}
	return err
}
