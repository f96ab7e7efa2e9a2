package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
)

// scraping is GET /metrics of a server with agents. Its floor reads
// /proc/PID/stat of each of their processes, which a scrape cannot do without.
func (s *server) scraping(ctx context.Context, rounds int, name string) ([]row, error) {
	pids, err := s.pids(ctx)
	if err != nil {
		return nil, err
	}
	want := fmt.Sprintf("\nnexus_agents{state=\"ready\"} %d\n", len(pids))
	bare := of(func() (float64, error) { return p50(ctx, 5, func() error { return readStats(pids) }) })
	scrape := of(func() (float64, error) {
		return p50(ctx, 5, func() error {
			text, err := s.metrics(ctx)
			if err == nil && !strings.Contains(text, want) {
				err = fmt.Errorf("the metrics lack %q", want)
			}
			return err
		})
	})
	return measure(ctx, rounds, figure{name, scrape, bare, "/proc/PID/stat of each", seconds, atMost(20e-3), p50th})
}

func readStats(pids map[string]int) error {
	for _, pid := range pids {
		if _, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid)); err != nil {
			return err
		}
	}
	return nil
}

// metrics is what GET /metrics answers.
func (s *server) metrics(ctx context.Context) (string, error) {
	body, err := ask(ctx, s.client, http.MethodGet, s.url+"/metrics", s.key, nil)
	if err != nil {
		return "", err
	}
	defer body.Close()
	text, err := io.ReadAll(body)
	return string(text), err
}
