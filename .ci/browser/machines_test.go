package browser

import (
	"fmt"
	"math/rand/v2"
	"net"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// While a machine of a cluster is lost, the page says that what it has is missing, among the agents and the saved sessions.
func TestMachineNotReached(t *testing.T) {
	dir := t.TempDir()
	farm := filepath.Join(dir, "farm")
	network := fmt.Sprintf("127.%d.%d.", 1+rand.IntN(250), rand.IntN(250)) // which nobody else takes by chance
	init := []string{"cluster", "init", farm}
	for i, name := range []string{"a", "b"} {
		l, err := net.Listen("tcp", fmt.Sprintf("%s%d:0", network, i+1))
		if err != nil {
			t.Fatal(err)
		}
		init = append(init, name+"="+l.Addr().String())
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if out, err := exec.Command(program("nexus"), init...).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	machine := func(name string) *server {
		return serve(t, filepath.Join(dir, name), "0", "--cluster-files", filepath.Join(farm, name))
	}
	a, b := machine("a"), machine("b")
	page := open(t, a.url+"/")
	page.enter(a)
	again := time.NewTicker(50 * time.Millisecond)
	defer again.Stop()
	create := fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":"create_agent","params":{"agent_id":"far","if_exists":"use","cwd":%q}}`, dir)
	for end := time.Now().Add(patience); ; <-again.C { // until the machines know each other
		answer := b.post("/", create)
		if strings.Contains(answer, `"result"`) {
			break
		}
		if time.Now().After(end) {
			t.Fatal(answer)
		}
	}
	page.says("#rows", "far")
	page.until("!" + visible("#unreached"))
	b.end(syscall.SIGKILL)
	page.says("#unreached", "The machine b is not reached: what it has is missing here.")
	page.says("#empty", "No agent runs here.")
	page.click("#saved summary")
	page.says("#saved-note", "No conversation is saved here yet. The machine b is not reached: what it has is missing here.")
	page.click("#forget")
	page.until("!" + visible("#unreached"))
	page.clean()
}
