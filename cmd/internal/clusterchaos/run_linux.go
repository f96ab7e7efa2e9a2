package clusterchaos

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/anishathalye/porcupine"
	"golang.org/x/sys/unix"

	"nexus.internal/bridge/api"
	"nexus.internal/bridge/client"
)

// Options say what is attacked.
type Options struct {
	Nexus    string // path of the program
	Machines int    // 2 to 5
	Seed     uint64
	Time     time.Duration // of the attack
	Agents   int
	Dir      string // empty, for all that is written
	Progress io.Writer
	// Apart says that this process has mounts of its own, and may mount and make network namespaces. Otherwise NotApart says why not: then
	// the machines listen on loopback, links are not faulty and disks are not filled.
	Apart    bool
	NotApart string
	Keep     bool // have what was on the disks of the machines in Dir also after a success
}

const (
	startTimeout  = time.Minute     // until a majority is there
	backTimeout   = 2 * time.Minute // until all answer after the last attack
	answerTimeout = 3 * time.Second // of one try to have one answer
	settleTimeout = 3 * time.Minute // until all is read
	checkTimeout  = 2 * time.Minute // for the model
)

// run is one run.
type run struct {
	o        Options
	machines []*machine
	network  *network    // nil if the machines listen on loopback
	missing  []string    // what is not tried, and why
	talkers  []*talker   // two of each agent, one after the other
	watching []*follower // one of each agent
	start    time.Time

	mu        sync.Mutex // guards what follows
	history   []porcupine.Operation
	running   map[string]int // sends that are under way, and by how many
	abandoned []string       // those among them that nobody waits for
	facts     map[string]int
	faults    []string        // what was promised otherwise
	taking    []time.Duration // how long agents were not answered for that were taken over
	full      bool            // a disk is
	freed     time.Time
}

// Run attacks a cluster. If ctx ends, the attack does, and what has happened is judged. The error says what kept it from being judged.
func Run(ctx context.Context, o Options) (report *Report, err error) {
	runtime.LockOSThread() // see machine
	defer runtime.UnlockOSThread()
	r := &run{o: o, start: time.Now(), running: map[string]int{}, facts: map[string]int{}}
	whole, cancel := context.WithTimeout(context.WithoutCancel(ctx), o.Time+10*time.Minute)
	defer cancel()
	defer func() {
		for _, m := range r.machines {
			m.end()
			if m.disk != "" && (o.Keep || err != nil || report == nil || !report.Passed()) {
				err = errors.Join(err, os.RemoveAll(filepath.Join(m.home(), "run")), os.CopyFS(filepath.Join(o.Dir, "home-"+m.name), os.DirFS(m.home())))
			}
		}
		if r.network != nil {
			r.network.close()
		}
	}()
	if err := r.prepare(); err != nil {
		return nil, err
	}
	if err := r.begin(whole); err != nil {
		return nil, err
	}
	r.progress("attack %d machines with %d agents for %v, seed %d", o.Machines, o.Agents, o.Time, o.Seed)
	attacked, calm := context.WithTimeout(ctx, o.Time)
	defer calm()
	var talking, following sync.WaitGroup
	followed, unfollow := context.WithCancel(whole)
	defer following.Wait()
	defer unfollow()
	for _, f := range r.watching {
		following.Go(func() { f.follow(followed) })
	}
	for _, t := range r.talkers {
		talking.Go(func() { t.talk(attacked, whole) })
	}
	err = r.attack(attacked)
	calm()
	report = &Report{Options: o, NotTried: r.missing}
	if err == nil {
		report.Back = r.back(whole)
	}
	talking.Wait()
	if err != nil {
		return nil, err
	}
	r.progress("read what every machine has")
	r.settle(whole)
	r.progress("compare %d operations with the model", len(r.history))
	return report, r.judge(report)
}

func (r *run) progress(format string, args ...any) {
	fmt.Fprintf(r.o.Progress, "%4.0f s  %s\n", time.Since(r.start).Seconds(), fmt.Sprintf(format, args...))
}

// prepare makes the homes and the certificates.
func (r *run) prepare() error {
	args := []string{"cluster", "init", filepath.Join(r.o.Dir, "files")}
	work := filepath.Join(r.o.Dir, "work")
	if err := os.Mkdir(work, 0o700); err != nil {
		return err
	}
	play, err := scenario()
	if err == nil {
		err = os.WriteFile(filepath.Join(r.o.Dir, scenarioFile), play, 0o600)
	}
	if err != nil {
		return err
	}
	addresses, err := r.separate()
	if err != nil {
		return err
	}
	for i, at := range addresses {
		m := &machine{nexus: r.o.Nexus, name: string(rune('a' + i)), dir: r.o.Dir, work: work}
		args = append(args, m.name+"="+at)
		if r.machines = append(r.machines, m); r.network != nil {
			m.space = r.network.spaces[i]
		}
		if err := r.home(m); err != nil {
			return err
		}
	}
	if err := r.certify(args); err != nil {
		return err
	}
	for agent := range r.o.Agents {
		name := fmt.Sprintf("agent%d", agent)
		r.watching = append(r.watching, r.newFollower(name, agent))
		for range 2 {
			n := len(r.talkers)
			r.talkers = append(r.talkers, &talker{r: r, number: n, agent: name, first: map[string]time.Time{}, draws: rand.New(rand.NewPCG(r.o.Seed, uint64(n)))})
		}
	}
	return nil
}

// certify makes the certificates of the machines: some days before, where wall clocks can be set, as those of servers may be that far behind. No
// server starts before the date of its certificate.
func (r *run) certify(args []string) error {
	var out bytes.Buffer
	command := func() *exec.Cmd {
		cmd := exec.Command(r.o.Nexus, args...)
		cmd.Stdout, cmd.Stderr = &out, &out
		cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
		return cmd
	}
	cmd := command()
	c, err := startWithClock(cmd, -2*farthestLie)
	defer c.close()
	if errors.Is(err, errNoLie) {
		r.missing = append(r.missing, "wall clocks do not jump: "+err.Error())
		cmd = command()
		err = cmd.Start()
	} else if err == nil {
		for _, m := range r.machines {
			m.lies = true
		}
	}
	if err == nil {
		err = cmd.Wait()
	}
	if err != nil {
		return fmt.Errorf("nexus cluster init: %w: %s", err, &out)
	}
	return nil
}

// separate gives each machine an address, and a network namespace where that is possible.
func (r *run) separate() (addresses []string, err error) {
	why := r.o.NotApart
	if r.o.Apart {
		if r.network, err = newNetwork(r.o.Machines); err == nil {
			for i := range r.o.Machines {
				at := address(i)
				addresses = append(addresses, fmt.Sprintf("%s:%d", net.IP(at[:]), clusterPort))
			}
			return addresses, nil
		}
		why = err.Error()
	}
	r.missing = append(r.missing, "links are not cut, slow or lossy, and the machines listen on loopback: "+why)
	network := fmt.Sprintf("127.%d.%d.", 1+rand.IntN(250), rand.IntN(250)) // of which nobody else takes a port
	for i := range r.o.Machines {
		l, err := net.Listen("tcp", fmt.Sprintf("%s%d:0", network, i+1))
		if err != nil {
			return nil, err
		}
		defer l.Close()
		addresses = append(addresses, l.Addr().String())
	}
	return addresses, nil
}

// Separate readies a process for [Options.Apart], which was started in namespaces of its own for mounts and network, and maybe users. The programs that it
// starts have none of its capabilities.
func Separate() error {
	if err := configure(setting{"lo", unix.SIOCSIFFLAGS, uint16(unix.IFF_UP)}); err != nil {
		return err
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("make mounts private: %w", err)
	}
	if _, _, err := syscall.AllThreadsSyscall6(unix.SYS_PRCTL, unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0, 0); err != 0 {
		return fmt.Errorf("keep capabilities from other programs: %w", err)
	}
	return nil
}

// diskSize is how much the disk of a machine holds, in bytes: what its agents save, and what of all agents the machines keep.
func (o Options) diskSize() uint64 {
	return 256<<20 + uint64(float64(o.Agents)*(2<<20)*max(1, o.Time.Minutes()))
}

// home makes the home of a machine, on a disk of its own where that is possible.
func (r *run) home(m *machine) error {
	if r.o.Apart {
		disk := filepath.Join(r.o.Dir, "disk-"+m.name)
		if err := os.Mkdir(disk, 0o700); err != nil {
			return err
		}
		err := unix.Mount("nexus-chaos", disk, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, fmt.Sprintf("size=%d,mode=0700", r.o.diskSize()))
		if err == nil {
			m.disk = disk
		} else {
			r.o.Apart, r.o.NotApart = false, "mount a tmpfs: "+err.Error()
		}
	}
	if m.disk == "" && m == r.machines[0] {
		r.missing = append(r.missing, "disks are not filled: "+r.o.NotApart)
	}
	return errors.Join(os.Mkdir(m.home(), 0o700), os.WriteFile(filepath.Join(m.home(), "config.json"), []byte(config), 0o600))
}

// begin starts the machines and makes the agents, each on the next machine.
func (r *run) begin(ctx context.Context) error {
	r.progress("start %d machines", len(r.machines))
	for _, m := range r.machines {
		if err := m.start(); err != nil {
			return err
		}
	}
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	for i, t := range r.talkers {
		if i%2 > 0 {
			continue
		}
		p := api.CreateAgentParams{AgentID: &t.agent, Cwd: &r.machines[0].work}
		for {
			_, err := client.Do(ctx, r.machines[i/2%len(r.machines)].call(), "", api.CreateAgent, p)
			if err == nil {
				break
			}
			if !pause(ctx, 200*time.Millisecond) {
				return fmt.Errorf("create %s: %w", t.agent, err)
			}
		}
	}
	return nil
}

// judge compares the history with the model, agent by agent, and writes down what cannot have happened.
func (r *run) judge(report *Report) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	var all []porcupine.Operation
	for agent, history := range byAgent(r.history) {
		all = append(all, history...)
		history, faults := place(history)
		for _, fault := range faults {
			r.faults = append(r.faults, agent+": "+fault)
		}
		result, info := porcupine.CheckOperationsVerbose(model(), history, checkTimeout)
		if result == porcupine.Ok {
			continue
		}
		path := filepath.Join(r.o.Dir, agent+".html")
		if err := porcupine.VisualizePath(model(), info, path); err != nil {
			return err
		}
		r.faults = append(r.faults, fmt.Sprintf("what %s answered cannot be (%s): see %s", agent, result, path))
	}
	slices.Sort(r.taking)
	report.Operations, report.Facts, report.Broken, report.TakeOvers = len(all), r.facts, r.faults, r.taking
	return nil
}

// setFull notes whether a disk is full.
func (r *run) setFull(full bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.full, r.freed = full, time.Now()
}

// mayBeFull reports whether a disk is full, or was when what is answered now may have been asked.
func (r *run) mayBeFull() bool { return r.wasFull(time.Now()) }

// wasFull reports whether a disk may have been full when something was carried out that was sent then for the first time.
func (r *run) wasFull(since time.Time) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.full || !r.freed.IsZero() && r.freed.Add(sendTimeout).After(since)
}

func (r *run) now() int64 { return int64(time.Since(r.start)) }

// began notes that a send is under way, and says when that is.
func (r *run) began(id string) int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.running[id]++
	return r.now()
}

func (r *run) over(id string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.running[id]--; r.running[id] == 0 {
		delete(r.running, id)
	}
}

// abandon notes that nobody waits for a send any more: it is under way until forgive.
func (r *run) abandon(id string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.abandoned = append(r.abandoned, id)
}

// forgive says that what nobody waits for is over: all agents have answered since.
func (r *run) forgive() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, id := range r.abandoned {
		delete(r.running, id)
	}
}

// besides are the sends that are under way now.
func (r *run) besides() (ids []string, now int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for id := range r.running {
		ids = append(ids, id)
	}
	return ids, r.now()
}

// note takes an operation that has just been answered.
func (r *run) note(o porcupine.Operation) {
	r.mu.Lock()
	defer r.mu.Unlock()
	o.Return = r.now()
	if asked := o.Input.(op); asked.send != "" && o.Output.(answer).outcome == unknown {
		o.Return = math.MaxInt64 // it may be done at any time
	}
	r.history = append(r.history, o)
	if o.Input.(op).send == "" {
		r.facts["conversations read"]++
	} else {
		r.facts["sends "+cmp.Or(o.Output.(answer).outcome, "not answered")]++
	}
}

func (r *run) count(what string) {
	if what == "" {
		what = "connections broken"
	}
	r.add(what, 1)
}

func (r *run) add(what string, n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.facts[what] += n
}

// taken notes how long an agent was not answered for.
func (r *run) taken(long time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.taking = append(r.taking, long)
}

// broken notes what was promised otherwise.
func (r *run) broken(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.faults = append(r.faults, fmt.Sprintf("%.3f s: ", time.Since(r.start).Seconds())+fmt.Sprintf(format, args...))
}
