package browser

import (
	"bytes"
	"context"
	"fmt"
	"image/png"
	"os"
	"path/filepath"
	"testing"

	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/chromedp"
)

// picture is what cmd/OPERATIONS.md shows.
var picture = filepath.Join("..", "..", "fixtures", "page", "screenshot.png")

// maxPicture bounds it, in bytes.
const maxPicture = 200 << 10

// TestLook fills the page with what a day brings and checks what can be measured
// of its looks, in the light and in the dark, on a wide and on a narrow screen.
// UPDATE=1 takes the picture for cmd/OPERATIONS.md.
func TestLook(t *testing.T) {
	dir := t.TempDir()
	site := "/srv" // nothing happens in it
	if info, err := os.Stat(site); err != nil || !info.IsDir() {
		site = "/"
	}
	scenario := filepath.Join(dir, "scenario.json")
	if err := os.WriteFile(scenario, []byte(`{"turns":[
		{"match":"broken links","steps":[{"text":"I found two broken links, both in the guide:\n\n1. guide/install.md still names the old download page.\n2. guide/agents.md points at a heading that was renamed.\n\nShall I correct them?"}]},
		{"match":"deploy","steps":[{"tool":{"name":"shell","input":{"command":"make deploy TARGET=staging"}}},{"text":"done"}]},
		{"match":"listen","steps":[{"text":"I am listening."},{"hang":"until_aborted"}]},
		{"match":"give up","steps":[{"exit":3}]}],"after":"offline"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	s := serve(t, filepath.Join(dir, "home"), "0", "--scenario", scenario)
	for _, agent := range []string{
		`"agent_id":"builder","approvals":"ask"`, `"agent_id":"docs-writer"`, `"agent_id":"architect"`, `"agent_id":"reviewer"`, `"agent_id":".scratch"`,
	} {
		s.rpc("/", fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":"create_agent","params":{%s,"preset":"trusted","cwd":%q}}`, agent, site))
	}
	for _, message := range []struct{ agent, text string }{{"builder", "deploy"}, {"architect", "listen"}, {"reviewer", "give up"}} {
		s.post("/agent/"+message.agent, fmt.Sprintf(`{"jsonrpc":"2.0","method":"send","params":{"content":%q}}`, message.text))
	}
	s.rpc("/agent/.scratch", `{"jsonrpc":"2.0","id":1,"method":"shutdown"}`)

	b := open(t, s.url+"/")
	b.look(t, "the door")
	b.enter(s)
	b.press("rows", "docs-writer")
	b.says("#flow", "live")
	b.write("#message", "Look for broken links in the guide.\r")
	b.says("#talk .outcome", "completed")
	b.says("#events", "turn_end")
	b.says("#facts div", "messages\n2")
	b.says("#asked-list", "make deploy")
	b.says("#rows .fault", "exit status 3")
	b.says("#rows .state", "busy")
	b.until(`[...document.querySelectorAll("#rows tr")].some((r) => r.innerText.includes("reviewer") && r.innerText.includes("ready"))`)
	b.until(`[...document.querySelectorAll("#rows td:nth-child(4)")].some((e) => e.innerText.includes("MiB"))`)

	for _, size := range []struct{ width, height int64 }{{1360, 860}, {800, 900}, {360, 740}} {
		b.do(chromedp.EmulateViewport(size.width, size.height))
		for _, name := range []string{"dark", "light"} {
			b.scheme(name)
			b.look(t, fmt.Sprintf("%s, %d wide", name, size.width))
			if os.Getenv("UPDATE") != "1" {
				continue
			}
			image := b.save(t, fmt.Sprintf("%s-%d.png", name, size.width))
			if name == "light" && size.width == 1360 {
				if err := os.WriteFile(picture, image, 0o644); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	data, err := os.ReadFile(picture)
	if err != nil {
		t.Fatal(err)
	}
	if config, err := png.DecodeConfig(bytes.NewReader(data)); err != nil || config.Width < 1000 || len(data) > maxPicture {
		t.Errorf("the picture of cmd/OPERATIONS.md: %v, %d wide, %d bytes, want at most %d (UPDATE=1 takes it anew)", err, config.Width, len(data), maxPicture)
	}
}

// save takes a picture, to be looked at with UPDATE=1 and -artifacts.
func (b *tab) save(t *testing.T, name string) []byte {
	t.Helper()
	if os.Getenv("UPDATE") != "1" {
		return nil
	}
	image := b.picture()
	if err := os.WriteFile(filepath.Join(t.ArtifactDir(), name), image, 0o644); err != nil {
		t.Fatal(err)
	}
	return image
}

func (b *tab) picture() []byte {
	b.t.Helper()
	eval[bool](b, `document.activeElement.blur(), true`)
	b.do(chromedp.MouseEvent(input.DispatchMouseEventTypeMouseMoved, 1, 1))
	ctx, cancel := context.WithTimeout(b.ctx, patience)
	defer cancel()
	data, err := chromedp.Run(ctx, chromedp.CaptureScreenshot())
	if err != nil {
		b.t.Fatalf("take a picture: %v", err)
	}
	return data
}

// look checks that nothing sticks out of the screen, that what can be used has a
// name, and that text stands out from what is behind it (WCAG AA).
func (b *tab) look(t *testing.T, name string) {
	t.Helper()
	if wide := eval[string](b, `document.documentElement.scrollWidth > innerWidth ? document.documentElement.scrollWidth + " of " + innerWidth : ""`); wide != "" {
		t.Errorf("%s: the page is wider than the screen: %s", name, wide)
	}
	for _, wrong := range eval[[]string](b, clipped) {
		t.Errorf("%s: cut off: %s", name, wrong)
	}
	for _, wrong := range eval[[]string](b, nameless) {
		t.Errorf("%s: nobody can tell what this is for: %s", name, wrong)
	}
	for _, wrong := range eval[[]string](b, faint) {
		t.Errorf("%s: hard to read: %s", name, wrong)
	}
}

// clipped lists what is cut off at the side: whatever sticks out of what scrolls or
// hides it, but for errors, which say by dots that there is more.
const clipped = `[...document.querySelectorAll("body *")].filter((e) => e.checkVisibility() && e.clientWidth > 1 && !e.matches(".fault, input, textarea, select"))
	.filter((e) => getComputedStyle(e).overflowX !== "visible" && e.scrollWidth > e.clientWidth)
	.map((e) => e.tagName + "#" + e.id + " " + e.className + " " + e.scrollWidth + " of " + e.clientWidth)`

// nameless lists the controls that are shown without a label.
const nameless = `[...document.querySelectorAll("button, input, select, textarea, [tabindex]")].filter((e) => e.checkVisibility())
	.filter((e) => !(e.innerText || e.getAttribute("aria-label") || e.labels?.length)).map((e) => e.outerHTML.slice(0, 100))`

// faint lists the texts that are shown with a contrast below 4.5.
const faint = `(() => {
	const paint = (color) => {
		const context = Object.assign(document.createElement("canvas"), { width: 1, height: 1 }).getContext("2d");
		context.fillStyle = color; context.fillRect(0, 0, 1, 1);
		return [...context.getImageData(0, 0, 1, 1).data];
	};
	const light = (rgb) => rgb.slice(0, 3).map((v) => v / 255).map((v) => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
		.reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
	const behind = (e) => { for (; e; e = e.parentElement) { const c = paint(getComputedStyle(e).backgroundColor); if (c[3] === 255) return c; } return [255, 255, 255]; };
	const wrong = [];
	for (const e of document.querySelectorAll("body *")) {
		if (!e.checkVisibility() || e.disabled || ![...e.childNodes].some((n) => n.nodeType === 3 && n.data.trim())) continue;
		const [a, b] = [light(paint(getComputedStyle(e).color)), light(behind(e))].sort((x, y) => y - x);
		const contrast = (a + 0.05) / (b + 0.05);
		if (contrast < 4.5) wrong.push(contrast.toFixed(2) + " " + e.tagName + " " + e.textContent.trim().slice(0, 40));
	}
	return wrong;
})()`
