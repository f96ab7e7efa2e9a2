package clusterchaos

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"nexus.internal/bridge/auth"
	"nexus.internal/bridge/client"
	"nexus.internal/cmd/internal/greeting"
)

// config makes the offline model's window so large that no conversation is compacted: what was said must be found.
const config = `{"providers":{"offline":{"type":"offline","models":[{"id":"offline","context_window":1000000000}]}}}`

const scenarioFile = "scenario.json"

// machine is one of the cluster: one process of nexus serve after another in the same home. It is safe for concurrent use, but for
// what starts and ends it, which Run's goroutine alone does: a server dies with the thread that has started it.
type machine struct {
	nexus, name, dir string        // dir has its home, its files of the cluster and its logs
	work             string        // which all machines share
	disk             string        // a file system of its own, which has the home; "" without one
	space            *namespace    // nil for a machine on loopback
	lies             bool          // its wall clock can be set
	lying            time.Duration // by which it is wrong
	starts           int

	mu     sync.Mutex // guards what follows
	cmd    *exec.Cmd  // nil while it does not run
	client *client.Client
	died   error // it ended, and nobody had killed it
	ended  chan struct{}
	clock  *clock // nil if it cannot be set
}

func (m *machine) home() string {
	if m.disk != "" {
		return filepath.Join(m.disk, "home")
	}
	return filepath.Join(m.dir, "home-"+m.name)
}

// start starts the machine, which does not run.
func (m *machine) start() error {
	m.starts++
	log, err := os.Create(filepath.Join(m.dir, fmt.Sprintf("%s-%d.log", m.name, m.starts)))
	if err != nil {
		return err
	}
	defer log.Close()
	cmd := exec.Command(m.nexus, "serve", "0", "--home", m.home(), "--cluster-files", filepath.Join(m.dir, "files", m.name), "--shared-path", m.work, "--scenario", filepath.Join(m.dir, scenarioFile))
	cmd.Dir, cmd.Stderr = m.work, log
	cmd.Env = append(os.Environ(), "NEXUS3_API_KEY=")
	// The terminal's interrupt is for us, and our death is the server's.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	var lying *clock
	err = m.space.within(func() (err error) {
		if m.lies {
			lying, err = startWithClock(cmd, m.lying)
		} else {
			err = cmd.Start()
		}
		return err
	})
	if err != nil {
		return err
	}
	ended := make(chan struct{})
	m.mu.Lock()
	m.cmd, m.ended, m.clock = cmd, ended, lying
	m.mu.Unlock()
	stuck := time.AfterFunc(startTimeout, func() { _ = cmd.Process.Kill() })
	defer stuck.Stop()
	c, err := connect(out, m.space)
	go func() { // kill and stop wait for ended
		defer close(ended)
		err := cmd.Wait()
		lying.close()
		m.mu.Lock()
		defer m.mu.Unlock()
		if m.cmd == cmd {
			m.cmd, m.died = nil, fmt.Errorf("the server of %s ended by itself: %w; see %s", m.name, err, log.Name())
		}
	}()
	if err == nil {
		err = lying.set(m.lying) // which fails if the server has its own clock
	}
	if err != nil {
		m.end()
		return fmt.Errorf("start the server of %s, see %s: %w", m.name, log.Name(), err)
	}
	m.mu.Lock()
	m.client = c
	m.mu.Unlock()
	return nil
}

// connect reads where a server listens, and its key.
func connect(out io.Reader, by client.Dialer) (*client.Client, error) {
	o := client.Options{Retries: -1, Dialer: by} // each try is accounted for
	var path string
	var err error
	if o.URL, path, err = greeting.Read(out); path == "" {
		return nil, errors.Join(errors.New("it does not say where it listens"), err)
	}
	if o.Key, err = auth.Read(path); err != nil {
		return nil, err
	}
	return client.New(o)
}

// lie has the wall clock of the server, and of those that follow it, be wrong by so much. Without a clock that can be set it does nothing.
func (m *machine) lie(by time.Duration) error {
	m.lying = by
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.cmd == nil {
		return nil
	}
	return m.clock.set(by)
}

// end kills the server and waits for its end.
func (m *machine) end() {
	m.mu.Lock()
	cmd, c, ended := m.cmd, m.client, m.ended
	m.cmd, m.client = nil, nil
	m.mu.Unlock()
	if cmd == nil {
		return
	}
	_ = cmd.Process.Kill() // it may have ended by itself
	<-ended
	if c != nil {
		c.Close()
	}
}

// kill kills the machine, unless it had ended by itself.
func (m *machine) kill() error {
	if err := m.failed(); err != nil {
		return err
	}
	m.end()
	return nil
}

// call is a client of the machine; nil while it does not run.
func (m *machine) call() *client.Client {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.client
}

// processes are the server and its engine, as far as they run.
func (m *machine) processes() (server *os.Process, engine *os.Process) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.cmd == nil {
		return nil, nil
	}
	server = m.cmd.Process
	threads, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", server.Pid)) // it may have ended
	for _, thread := range threads {
		children, _ := os.ReadFile(thread)
		for child := range strings.FieldsSeq(string(children)) {
			name, _ := os.ReadFile("/proc/" + child + "/comm")
			if strings.TrimSpace(string(name)) != "nexus-cluster" {
				continue
			}
			if pid, err := strconv.Atoi(child); err == nil {
				engine, _ = os.FindProcess(pid) // on Linux there is no error
			}
		}
	}
	return server, engine
}

// failed is why the machine ended by itself; nil if it did not.
func (m *machine) failed() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.died
}
