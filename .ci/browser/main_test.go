package browser

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
)

// patience is how long a test waits for what must happen; nothing is asserted
// about the time it takes.
const patience = 30 * time.Second

// browser is the program; found by TestMain.
var browser string

func TestMain(m *testing.M) {
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome", "chrome"} {
		if path, err := exec.LookPath(name); err == nil {
			browser = path
			os.Exit(m.Run())
		}
	}
	fmt.Fprintln(os.Stderr, "the page is tested in chromium, which is not here: install it (apt-get install chromium)")
	os.Exit(1)
}

// server is a nexus server of the test's own.
type server struct {
	t    *testing.T
	home string
	url  string // http://127.0.0.1:PORT
	key  string
	cmd  *exec.Cmd
	done chan struct{} // closed when it has ended
}

// program is where one of our programs is.
func program(name string) string {
	bin := os.Getenv("NEXUS_BIN")
	if bin == "" {
		bin = filepath.Join("..", "..", "bin")
	}
	return filepath.Join(bin, name)
}

// serve starts one, on the port of args or on a free one.
func serve(t *testing.T, home string, args ...string) *server {
	t.Helper()
	if len(args) == 0 {
		args = []string{"0"}
	}
	s := &server{t: t, home: home, done: make(chan struct{})}
	s.cmd = exec.Command(program("nexus"), append([]string{"serve", "--home", home, "--drain-timeout", "1s"}, args...)...)
	var log bytes.Buffer
	s.cmd.Stderr = &log
	out, err := s.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := s.cmd.Start(); err != nil {
		t.Fatalf("%v (make build)", err)
	}
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		if at, ok := strings.CutPrefix(lines.Text(), "nexus listening on "); ok {
			s.url = at
		}
		if path, ok := strings.CutPrefix(lines.Text(), "key file: "); ok {
			data, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			s.key = strings.TrimSpace(string(data))
			break
		}
	}
	go func() {
		defer close(s.done)
		_, _ = io.Copy(io.Discard, out)
		_ = s.cmd.Wait()
	}()
	t.Cleanup(func() {
		s.end(syscall.SIGTERM)
		if t.Failed() {
			t.Logf("the server's log:\n%s", log.String())
		}
	})
	if s.key == "" {
		s.end(syscall.SIGKILL)
		t.Fatalf("the server did not start:\n%s", log.String())
	}
	return s
}

// end ends the server by a signal, and waits until it has.
func (s *server) end(sig os.Signal) {
	s.t.Helper()
	if err := s.cmd.Process.Signal(sig); err != nil && !errors.Is(err, os.ErrProcessDone) {
		s.t.Error(err)
	}
	select {
	case <-s.done:
	case <-time.After(patience):
		s.t.Errorf("the server lives on after %v", sig)
		_ = s.cmd.Process.Kill()
		<-s.done
	}
}

// rpc calls a method beside the page, and returns the answer.
func (s *server) rpc(path, body string) string {
	s.t.Helper()
	answer := s.post(path, body)
	if !strings.Contains(answer, `"result"`) {
		s.t.Fatalf("%s: %s", body, answer)
	}
	return answer
}

func (s *server) post(path, body string) string {
	s.t.Helper()
	request, err := http.NewRequestWithContext(s.t.Context(), http.MethodPost, s.url+path, strings.NewReader(body))
	if err != nil {
		s.t.Fatal(err)
	}
	request.Header.Set("Authorization", "Bearer "+s.key)
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		s.t.Fatal(err)
	}
	defer response.Body.Close()
	answer, err := io.ReadAll(response.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	return string(answer)
}

// tab is a page in a browser of its own. A script that fails, or anything that
// the page's policy stops, fails the test.
type tab struct {
	t   *testing.T
	ctx context.Context
}

func open(t *testing.T, url string, more ...chromedp.ExecAllocatorOption) *tab {
	t.Helper()
	options := append([]chromedp.ExecAllocatorOption{}, chromedp.DefaultExecAllocatorOptions[:]...)
	options = append(options,
		chromedp.ExecPath(browser), chromedp.NoSandbox, chromedp.DisableGPU, chromedp.NoFirstRun,
		chromedp.Flag("disable-quic", true), chromedp.Flag("disable-component-update", true), chromedp.Flag("disable-sync", true),
		chromedp.WindowSize(1360, 860), chromedp.WSURLReadTimeout(2*patience))
	options = append(options, more...)
	b, err := start(t, options)
	if err != nil {
		t.Logf("start %s, at first: %v", browser, err) // a busy machine: the browser gives up by itself
		b, err = start(t, options)
	}
	if err != nil {
		t.Fatalf("start %s: %v", browser, err)
	}
	command(b, page.AddScriptToEvaluateOnNewDocument, page.AddScriptToEvaluateOnNewDocumentParams{
		Source: `window.stopped = []; document.addEventListener("securitypolicyviolation", (e) => window.stopped.push(e.violatedDirective + " " + e.sample))`,
	})
	b.do(chromedp.Navigate(url))
	return b
}

// start starts a browser, which ends with the test.
func start(t *testing.T, options []chromedp.ExecAllocatorOption) (*tab, error) {
	t.Helper()
	options = append(options[:len(options):len(options)], chromedp.UserDataDir(t.TempDir()))
	allocated, release := chromedp.NewExecAllocator(context.Background(), options...)
	ctx, closeTab := chromedp.NewContext(allocated)
	err := chromedp.Listen(ctx, func(event any) {
		switch e := event.(type) {
		case *runtime.EventExceptionThrown:
			t.Errorf("the page's script failed: %s %+v", e.ExceptionDetails.Text, e.ExceptionDetails.Exception)
		case *page.EventJavascriptDialogOpening:
			t.Errorf("a dialog was opened: %s", e.Message)
		}
	})
	if err != nil {
		closeTab()
		release() // waits for the browser
		return nil, err
	}
	t.Cleanup(func() {
		if err := chromedp.Cancel(ctx); err != nil { // waits for the browser
			t.Error(err)
		}
		closeTab()
		release()
	})
	return &tab{t: t, ctx: ctx}, nil
}

// command sends a command of the browser's protocol.
func command[P, R any](b *tab, command cdp.Command[P, R], params P) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, patience)
	defer cancel()
	if _, err := chromedp.Call(ctx, command, params); err != nil {
		b.t.Fatalf("browser: %v", err)
	}
}

func (b *tab) do(steps ...chromedp.Action[chromedp.Void]) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, patience)
	defer cancel()
	if err := chromedp.Do(ctx, steps...); err != nil {
		b.t.Fatalf("browser: %v\nthe page says:\n%s", err, b.text())
	}
}

func (b *tab) text() string {
	ctx, cancel := context.WithTimeout(b.ctx, patience)
	defer cancel()
	text, err := chromedp.Run(ctx, chromedp.Evaluate[string](`document.body.innerText`))
	if err != nil {
		return err.Error()
	}
	return text
}

// eval returns the value of an expression, or of the promise that it is.
func eval[V any](b *tab, expression string) V {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, patience)
	defer cancel()
	value, err := chromedp.Run(ctx, chromedp.Evaluate[V](expression, chromedp.EvalAwaitPromise))
	if err != nil {
		b.t.Fatalf("evaluate %s: %v", expression, err)
	}
	return value
}

// until waits for an expression to become true.
func (b *tab) until(expression string) {
	b.t.Helper()
	again := time.NewTicker(50 * time.Millisecond)
	defer again.Stop()
	for end := time.Now().Add(patience); !eval[bool](b, expression); <-again.C {
		if time.Now().After(end) {
			b.t.Fatalf("waited for %s\nthe page says:\n%s", expression, b.text())
		}
	}
}

// says waits for an element that is shown and has a text.
func (b *tab) says(selector, text string) {
	b.t.Helper()
	b.until(fmt.Sprintf(`[...document.querySelectorAll(%q)].some((e) => e.checkVisibility() && e.innerText.includes(%q))`, selector, text))
}

func (b *tab) click(selector string) {
	b.t.Helper()
	b.do(chromedp.Click(chromedp.CSS(selector), chromedp.NodeVisible))
}

// clickMoving clicks an element that moves, as one does below an answer that grows: a click by the mouse goes to where
// the element was when its place was asked, and may miss it.
func (b *tab) clickMoving(selector string) {
	b.t.Helper()
	b.until(fmt.Sprintf(`(() => { const e = document.querySelector(%q); e?.click(); return Boolean(e); })()`, selector))
}

// press clicks the button of an element that has a text.
func (b *tab) press(within, text string) {
	b.t.Helper()
	b.do(chromedp.Click(chromedp.Search(fmt.Sprintf(`//*[@id=%q]//button[text()=%q]`, within, text)), chromedp.NodeVisible))
}

// empty empties a field.
func (b *tab) empty(selector string) {
	b.t.Helper()
	eval[string](b, fmt.Sprintf(`document.querySelector(%q).value = ""`, selector))
}

// write puts text into a field, by the keyboard.
func (b *tab) write(selector, text string) {
	b.t.Helper()
	b.do(chromedp.SendKeys(chromedp.CSS(selector), text, chromedp.NodeVisible))
}

// enter opens the page with the server's key.
func (b *tab) enter(s *server) {
	b.t.Helper()
	b.write("#key", s.key+"\r")
	b.says("#link", "Connected")
}

// clean checks that nothing tried what the policy forbids.
func (b *tab) clean() {
	b.t.Helper()
	if stopped := eval[[]string](b, `window.stopped`); len(stopped) > 0 {
		b.t.Errorf("the policy stopped %q", stopped)
	}
}
