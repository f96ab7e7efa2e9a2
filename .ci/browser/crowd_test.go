package browser

import (
	"fmt"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
)

// inView is an expression that says whether the whole width and the top of an
// element are on the screen.
func inView(selector string) string {
	return fmt.Sprintf(`(() => { const r = document.querySelector(%q).getBoundingClientRect();
		return r.width > 0 && r.left >= 0 && r.right <= innerWidth && r.top >= 0 && r.top < innerHeight - 20; })()`, selector)
}

// With many agents the one that is chosen is there to be seen, wherever in the list
// it stands, and can be found by its name, of which nothing is left out.
func TestManyAgents(t *testing.T) {
	s := serve(t, t.TempDir())
	const n = 40
	for i := range n {
		s.rpc("/", fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":"create_agent","params":{"agent_id":".worker-with-a-quite-long-name-%02d"}}`, i))
	}
	s.rpc("/", `{"jsonrpc":"2.0","id":1,"method":"create_agent","params":{"agent_id":"`+strings.Repeat("A_b", 21)+`"}}`) // nowhere to break it
	b := open(t, s.url+"/")
	b.enter(s)
	b.says("#count", "41 agents")
	b.look(t, "many agents")
	for i, size := range []struct{ width, height int64 }{{1360, 860}, {1100, 700}, {800, 900}, {360, 740}} {
		b.do(chromedp.EmulateViewport(size.width, size.height))
		name := fmt.Sprintf(".worker-with-a-quite-long-name-%02d", n-1-i)
		b.press("rows", name)
		b.says("#agent-title", name)
		b.says("#flow", "live")
		b.until(inView("#agent"))
		if size.width >= 1100 {
			b.until(inView("#rows tr.chosen"))
		}
		if size.width < 1100 {
			b.until(`document.activeElement.id === "agent-title"`)
		} else if tall := eval[int](b, `document.documentElement.scrollHeight`); tall > int(size.height) {
			t.Errorf("%d by %d: the page is %d high", size.width, size.height, tall)
		}
		b.look(t, fmt.Sprintf("many agents, %d wide", size.width))
		b.save(t, fmt.Sprintf("many-%d.png", size.width))
		if size.width < 1100 {
			b.click("#back")
			b.until(inView("#rows tr.chosen"))
			b.save(t, fmt.Sprintf("many-%d-list.png", size.width))
		}
	}

	b.write("#filter", "NAME-07")
	b.until(`[...document.querySelectorAll("#rows tr")].filter((e) => e.checkVisibility()).length === 1`)
	b.says("#rows", ".worker-with-a-quite-long-name-07")
	b.write("#filter", "x")
	b.says("#empty", "No agent has such a name")
	b.clean()
}

// Of many questions the first are shown, how many more there are is said, and all can
// be reached and answered.
func TestManyQuestions(t *testing.T) {
	s := serve(t, t.TempDir())
	const n = 15
	for i := range n {
		s.rpc("/", fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":"create_agent","params":{"agent_id":".asker-%02d","approvals":"ask"}}`, i))
		s.post(fmt.Sprintf("/agent/.asker-%02d", i), fmt.Sprintf(`{"jsonrpc":"2.0","method":"send","params":{"content":"run mkdir made-%02d"}}`, i))
	}
	b := open(t, s.url+"/")
	b.enter(s)
	b.says("#asked-title", "Waiting for you: 15")
	b.until(`document.title.startsWith("(15)")`)
	cards := func(want int) {
		b.until(fmt.Sprintf(`document.querySelectorAll("#asked-list li").length === %d`, want))
	}
	cards(12)
	b.says("#asked-more", "Show 3 more of 3")
	b.look(t, "many questions")
	b.save(t, "asks.png")
	b.click("#asked-list li:nth-child(2) button:last-child")
	b.says("#asked-title", "Waiting for you: 14")
	cards(12)
	b.click("#asked-more")
	cards(14)
	b.until("!" + visible("#asked-more"))
	for i := n - 1; i > 0; i-- {
		b.until(fmt.Sprintf(`document.querySelectorAll("#asked-list li").length === %d`, i))
		b.click("#asked-list li:last-child button:last-child")
	}
	b.until("!" + visible("#asked"))
	b.clean()
}
