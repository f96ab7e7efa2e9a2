package cli

import (
	"context"
	"fmt"
	"html"
	"net/url"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"nexus.internal/bridge/api"
	"nexus.internal/bridge/client"
	"nexus.internal/protocol/safefile"
)

// openPatience is how long a browser is watched for its failure. What runs longer is at
// work.
const openPatience = 2 * time.Second

// openResult is what open says as JSON.
type openResult struct {
	URL              string `json:"url"`
	ExpiresInSeconds uint64 `json:"expires_in_s"`
	Opened           bool   `json:"opened"`
}

// openPage is the verb that has a browser open the page by a one-time code. The code is not
// on the browser's command line, which all users of the machine can see, but in a file of
// the home that leads there.
type openPage struct{ show bool }

func (v *openPage) flags(f *pflag.FlagSet) {
	f.BoolVar(&v.show, "print", false, "print the address, which opens the page once within a minute, instead of starting a browser")
}

func (v *openPage) run(ctx context.Context, a *App, c *client.Client, _ []string) error {
	made, err := client.Do(ctx, c, "", api.CreatePageCode, api.None{})
	if err != nil {
		return err
	}
	result := openResult{URL: made.URL, ExpiresInSeconds: made.ExpiresInSeconds}
	if !v.show {
		if err = browse(a.target, made.URL); err == nil {
			result.Opened = true
		} else {
			fmt.Fprintf(a.Stderr, "%s: %v; open the address by hand within a minute\n", a.Name, err)
		}
	}
	address := made.URL
	if result.Opened {
		address, _, _ = strings.Cut("opened "+made.URL, "#")
	}
	return a.done(result, nil, "%s\n", address)
}

// browse starts a browser on a file that leads to an address. The file stays until the
// next one, as nobody knows when the browser has read it; its code is dead by then.
func browse(t *target, address string) error {
	browser, err := t.browser()
	if err != nil {
		return err
	}
	home, err := t.Home()
	if err != nil {
		return err
	}
	if home, err = filepath.Abs(home); err != nil {
		return err
	}
	path := filepath.Join(home, "run", "open.html")
	link := html.EscapeString(address)
	page := "<!doctype html><meta charset=\"utf-8\"><meta name=\"referrer\" content=\"no-referrer\"><title>nexus</title>" +
		"<meta http-equiv=\"refresh\" content=\"0;url=" + link + "\"><a href=\"" + link + "\">nexus</a>\n"
	if err := safefile.Replace(path, []byte(page), false); err != nil {
		return err
	}
	file := (&url.URL{Scheme: "file", Path: path}).String()
	cmd := exec.Command(browser[0], arguments(browser[1:], file)...)
	cmd.Env, cmd.SysProcAttr = t.environ, detached()
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start a browser: %w", err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }() // ends with the browser, or with this process
	select {
	case err := <-ended:
		if err != nil {
			return fmt.Errorf("%s: %w", browser[0], err)
		}
	case <-time.After(openPatience):
	}
	return nil
}

// browser is the command that opens an address: $BROWSER, or what the system has for it.
func (t *target) browser() ([]string, error) {
	if own := strings.Fields(t.getenv("BROWSER")); len(own) > 0 {
		return own, nil
	}
	name := "xdg-open"
	if runtime.GOOS == "darwin" {
		name = "open"
	}
	path, err := exec.LookPath(name)
	if err != nil {
		return nil, fmt.Errorf("there is neither $BROWSER nor %s to open a page with", name)
	}
	return []string{path}, nil
}

// arguments are those of a browser: the file stands for each %s, or comes last.
func arguments(given []string, file string) []string {
	var args []string
	placed := false
	for _, arg := range given {
		placed = placed || strings.Contains(arg, "%s")
		args = append(args, strings.ReplaceAll(arg, "%s", file))
	}
	if !placed {
		args = append(args, file)
	}
	return args
}
