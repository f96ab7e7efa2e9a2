package telemetry

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.uber.org/zap"
	"google.golang.org/protobuf/proto"

	"nexus.internal/protocol/safefile"
)

const (
	defaultTimeout = 10 * time.Second // of one export, by the specification of OTLP exporters
	maxTimeout     = time.Minute
	maxResponse    = 64 << 10 // bytes that are read of an answer
	// maxCertificates bounds a file of certificates, in bytes.
	maxCertificates = 4 << 20
)

// collector is a sdktrace.SpanExporter that speaks OTLP over HTTP in protobuf. A batch
// that is not taken is lost: it is not tried again.
type collector struct {
	url     string
	headers http.Header
	timeout time.Duration
	gzip    bool
	client  *http.Client
	log     *zap.Logger
	lives   context.Context //nolint:containedctx // ends what is under way with the server
	end     context.CancelFunc

	mu     sync.Mutex // guards losing
	losing bool       // the last batch was lost
}

// newCollector reads the environment (OTEL_EXPORTER_OTLP_…). No error has the endpoint
// or a header in it: they may hold secrets.
func newCollector(getenv func(string) string, log *zap.Logger) (*collector, error) {
	setting := func(name string) string {
		return strings.TrimSpace(cmp.Or(getenv("OTEL_EXPORTER_OTLP_TRACES_"+name), getenv("OTEL_EXPORTER_OTLP_"+name)))
	}
	c := &collector{timeout: defaultTimeout, log: log}
	if protocol := setting("PROTOCOL"); protocol != "" && protocol != "http/protobuf" {
		return nil, fmt.Errorf("OTEL_EXPORTER_OTLP_PROTOCOL is %q, want http/protobuf", protocol)
	}
	for _, name := range []string{"CLIENT_KEY", "CLIENT_CERTIFICATE"} {
		if setting(name) != "" {
			return nil, fmt.Errorf("OTEL_EXPORTER_OTLP_%s is not supported: send traces to a collector on this machine", name)
		}
	}
	c.url = getenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
	if c.url == "" {
		c.url = strings.TrimRight(cmp.Or(getenv("OTEL_EXPORTER_OTLP_ENDPOINT"), "http://localhost:4318"), "/") + "/v1/traces"
	}
	if u, err := url.Parse(c.url); err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return nil, errors.New("OTEL_EXPORTER_OTLP_ENDPOINT is no http or https URL")
	}
	if text := setting("TIMEOUT"); text != "" {
		ms, err := strconv.ParseUint(text, 10, 32)
		if err != nil || ms == 0 {
			return nil, fmt.Errorf("OTEL_EXPORTER_OTLP_TIMEOUT is %q, want milliseconds", text)
		}
		c.timeout = min(time.Duration(ms)*time.Millisecond, maxTimeout)
	}
	switch compression := setting("COMPRESSION"); compression {
	case "", "none":
	case "gzip":
		c.gzip = true
	default:
		return nil, fmt.Errorf("OTEL_EXPORTER_OTLP_COMPRESSION is %q, want gzip or none", compression)
	}
	var err error
	if c.headers, err = headers(setting("HEADERS")); err != nil {
		return nil, err
	}
	transport := http.DefaultTransport.(*http.Transport).Clone()
	if path := setting("CERTIFICATE"); path != "" {
		pem, err := safefile.ReadLinked(path, maxCertificates)
		if err != nil {
			return nil, fmt.Errorf("read OTEL_EXPORTER_OTLP_CERTIFICATE: %w", err)
		}
		roots := x509.NewCertPool()
		if !roots.AppendCertsFromPEM(pem) {
			return nil, errors.New("OTEL_EXPORTER_OTLP_CERTIFICATE names no file with a certificate")
		}
		transport.TLSClientConfig = &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}
	}
	c.client = &http.Client{Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	c.lives, c.end = context.WithCancel(context.Background())
	return c, nil
}

// headers reads NAME=VALUE pairs with commas between them and escapes as in URLs.
func headers(text string) (http.Header, error) {
	h := http.Header{}
	for pair := range strings.SplitSeq(text, ",") {
		if strings.TrimSpace(pair) == "" {
			continue
		}
		name, value, ok := strings.Cut(pair, "=")
		decoded, err := url.PathUnescape(strings.TrimSpace(value))
		if !ok || err != nil || strings.ContainsAny(decoded, "\r\n\x00") || strings.TrimSpace(name) == "" {
			return nil, errors.New("OTEL_EXPORTER_OTLP_HEADERS is no list of NAME=VALUE")
		}
		h.Set(strings.TrimSpace(name), decoded)
	}
	return h, nil
}

func (c *collector) ExportSpans(ctx context.Context, spans []sdktrace.ReadOnlySpan) error {
	if len(spans) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	defer context.AfterFunc(c.lives, cancel)()
	err := c.post(ctx, spans)
	c.mu.Lock()
	told := c.losing == (err != nil)
	c.losing = err != nil
	c.mu.Unlock()
	switch {
	case told: // a collector that is gone has one line, not one for each batch
	case err != nil:
		c.log.Warn("traces are lost until the collector takes them again", zap.Int("spans", len(spans)), zap.String("reason", err.Error()))
	default:
		c.log.Info("the collector takes traces again")
	}
	return nil
}

// post sends one batch.
func (c *collector) post(ctx context.Context, spans []sdktrace.ReadOnlySpan) error {
	body, err := proto.Marshal(encode(spans))
	if err != nil {
		return fmt.Errorf("encode spans: %w", err)
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, c.url, nil)
	if err != nil {
		return errors.New("the endpoint is no URL")
	}
	for name, values := range c.headers {
		request.Header[name] = values
	}
	request.Header.Set("Content-Type", "application/x-protobuf")
	request.Header.Set("User-Agent", "nexus")
	if c.gzip {
		var packed bytes.Buffer
		w := gzip.NewWriter(&packed)
		if _, err := w.Write(body); err != nil {
			return err
		}
		if err := w.Close(); err != nil {
			return err
		}
		body = packed.Bytes()
		request.Header.Set("Content-Encoding", "gzip")
	}
	request.Body, request.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	response, err := c.client.Do(request)
	if err != nil {
		if e, ok := errors.AsType[*url.Error](err); ok {
			err = e.Err // without the URL
		}
		return err
	}
	defer response.Body.Close()
	_, _ = io.CopyN(io.Discard, response.Body, maxResponse) // so that the connection can be used again
	if response.StatusCode/100 != 2 {
		return fmt.Errorf("HTTP %d", response.StatusCode)
	}
	return nil
}

func (c *collector) Shutdown(context.Context) error {
	c.end()
	c.client.CloseIdleConnections()
	return nil
}
