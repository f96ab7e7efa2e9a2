package shell

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"nexus.internal/child/tool"
	"nexus.internal/protocol"
	"nexus.internal/protocol/strict"
	"nexus.internal/protocol/textcut"
)

// maxWait is how long one call may wait for a job, in seconds.
const maxWait = 3600

// Tools are job_start, job_output, job_input, job_stop and job_list. That first one describes
// itself alone, and never runs: see [Jobs.Start].
func (s *Jobs) Tools() (start tool.Scoped, others []tool.Tool) {
	return startTool{}, []tool.Tool{outputTool{s}, inputTool{s}, stopTool{s}, listTool{s}}
}

// startInput is what a call of job_start asks for.
type startInput struct {
	Command  string  `json:"command"`
	Cwd      *string `json:"cwd,omitzero"`
	Name     *string `json:"name,omitzero"`
	Stdin    *string `json:"stdin,omitzero"`
	Terminal *bool   `json:"terminal,omitzero"`
}

func parseStart(in jsontext.Value) (command, string, error) {
	var i startInput
	if err := strict.Unmarshal(in, &i, strict.RejectUnknown); err != nil {
		return command{}, "", err
	}
	name := protocol.Value(i.Name)
	if err := checkName("name", name); err != nil {
		return command{}, "", err
	}
	c := command{command: i.Command, cwd: protocol.Value(i.Cwd), stdin: protocol.Value(i.Stdin), terminal: protocol.Value(i.Terminal)}
	return c, name, c.check()
}

type startTool struct{}

func (startTool) Spec() tool.Spec {
	return tool.Spec{
		Name: "job_start",
		Description: "Start a command that goes on in the background, such as a development server, while you do other things. " +
			"Returns at once. The job lasts beyond this turn; you are told when it has ended. It has the same permissions as shell.",
		InputSchema: jsontext.Value(`{"type":"object","properties":{` +
			`"command":{"type":"string","description":"what the shell runs"},` +
			`"cwd":{"type":"string","description":"a directory within the working directory to run it in"},` +
			`"name":{"type":"string","description":"a short name to speak of it by, such as web"},` +
			`"stdin":{"type":"string","description":"the beginning of its input, at most 256 KiB; job_input gives more"},` +
			`"terminal":{"type":"boolean","description":"give it a terminal, for programs that want one; input is typed there"}},` +
			`"required":["command"],"additionalProperties":false}`),
	}
}

func (startTool) Scope(in jsontext.Value) (tool.Scope, error) {
	c, name, err := parseStart(in)
	if err != nil {
		return tool.Scope{Action: protocol.ActionExecute}, err
	}
	scope := c.scope()
	scope.Summary = strings.TrimSpace("start job "+name) + ": " + strings.TrimPrefix(scope.Summary, "run: ")
	return scope, nil
}

func (startTool) Run(context.Context, tool.Call) (tool.Result, error) {
	return tool.Result{}, fmt.Errorf("no job can be started here")
}

// outputTool is job_output.
type outputTool struct{ jobs *Jobs }

type outputInput struct {
	Job   string   `json:"job"`
	Since *int64   `json:"since,omitzero"`
	WaitS *float64 `json:"wait_s,omitzero"`
	Until *string  `json:"until,omitzero"`
}

func (outputTool) Spec() tool.Spec {
	return tool.Spec{
		Name:        "job_output",
		Description: "Show what a background job has put out since you last looked, and whether it still runs.",
		InputSchema: jsontext.Value(fmt.Sprintf(`{"type":"object","properties":{`+
			`"job":{"type":"string","description":"its name"},`+
			`"since":{"type":"integer","minimum":0,"description":"the byte to begin at; default is what was not shown yet"},`+
			`"wait_s":{"type":"number","minimum":0,"maximum":%d,"description":"seconds to wait for output or the end, if there is none; default 0"},`+
			`"until":{"enum":["output","end"],"description":"what to wait for, default output"}},`+
			`"required":["job"],"additionalProperties":false}`, maxWait)),
	}
}

func (outputTool) parse(in jsontext.Value) (i outputInput, err error) {
	if err := strict.Unmarshal(in, &i, strict.RejectUnknown); err != nil {
		return i, err
	}
	switch until := protocol.ValueOr(i.Until, "output"); {
	case protocol.Value(i.Since) < 0:
		return i, &strict.Error{Path: "since", Problem: fmt.Sprintf("must be 0 or more, is %d", *i.Since)}
	case protocol.Value(i.WaitS) < 0 || protocol.Value(i.WaitS) > maxWait:
		return i, &strict.Error{Path: "wait_s", Problem: fmt.Sprintf("must be 0 to %d, is %v", maxWait, *i.WaitS)}
	case until != "output" && until != "end":
		return i, &strict.Error{Path: "until", Problem: fmt.Sprintf("is %.64q, want output or end", until)}
	}
	return i, nil
}

func (i outputInput) wait() time.Duration {
	return time.Duration(protocol.Value(i.WaitS) * float64(time.Second))
}

// TimeLimit implements [tool.Timed].
func (o outputTool) TimeLimit(in jsontext.Value) time.Duration {
	i, err := o.parse(in)
	if err != nil {
		return 0
	}
	return i.wait()
}

func (outputTool) Scope(jsontext.Value) (tool.Scope, error) {
	return tool.Scope{Action: protocol.ActionNone, Summary: "show the output of a job"}, nil
}

func (o outputTool) Run(ctx context.Context, c tool.Call) (tool.Result, error) {
	i, err := o.parse(c.Input)
	if err != nil {
		return tool.Result{}, err
	}
	j, err := o.jobs.find(i.Job)
	if err != nil {
		return tool.Result{}, err
	}
	since := protocol.ValueOr(i.Since, -1)
	timer := time.NewTimer(i.wait())
	defer timer.Stop()
	for waiting := i.wait() > 0; waiting; {
		changed := j.quiet(since, protocol.Value(i.Until) == "end")
		if changed == nil {
			break
		}
		select {
		case <-changed:
		case <-timer.C:
			waiting = false
		case <-ctx.Done():
			return tool.Result{}, ctx.Err()
		}
	}
	return tool.Result{Text: j.look(since)}, nil
}

// inputTool is job_input.
type inputTool struct{ jobs *Jobs }

type inputInput struct {
	Job  string `json:"job"`
	Text string `json:"text"`
	End  *bool  `json:"end,omitzero"`
}

func (inputTool) Spec() tool.Spec {
	return tool.Spec{
		Name:        "job_input",
		Description: "Write text to the input of a background job. A line needs its newline at the end.",
		InputSchema: jsontext.Value(`{"type":"object","properties":{` +
			`"job":{"type":"string","description":"its name"},` +
			`"text":{"type":"string","description":"at most 256 KiB"},` +
			`"end":{"type":"boolean","description":"end the input after it"}},` +
			`"required":["job","text"],"additionalProperties":false}`),
	}
}

func (inputTool) parse(in jsontext.Value) (i inputInput, err error) {
	if err := strict.Unmarshal(in, &i, strict.RejectUnknown); err != nil {
		return i, err
	}
	if len(i.Text) > maxStdin {
		return i, &strict.Error{Path: "text", Problem: fmt.Sprintf("has %d bytes, more than %d", len(i.Text), maxStdin)}
	}
	return i, nil
}

// Scope tells that programs may be run: a shell or an interpreter does what it is told, so
// what was said of the job's start says nothing of this.
func (t inputTool) Scope(in jsontext.Value) (tool.Scope, error) {
	scope := tool.Scope{Action: protocol.ActionExecute, Programs: []string{Unknown}}
	i, err := t.parse(in)
	if err != nil {
		return scope, err
	}
	to := ""
	if j, err := t.jobs.find(i.Job); err == nil {
		to = fmt.Sprintf(" (%s)", textcut.Head(strings.TrimSpace(j.command), 100))
	}
	scope.Summary = fmt.Sprintf("give job %.64s%s the input %.200q", i.Job, to, i.Text)
	return scope, nil
}

func (t inputTool) Run(ctx context.Context, c tool.Call) (tool.Result, error) {
	i, err := t.parse(c.Input)
	if err != nil {
		return tool.Result{}, err
	}
	j, err := t.jobs.find(i.Job)
	if err != nil {
		return tool.Result{}, err
	}
	if how := j.doomed(); how != "" {
		return tool.Result{}, fmt.Errorf("job %s has ended: %s", j.id, how)
	}
	select {
	case <-j.ran:
	case <-ctx.Done():
		return tool.Result{}, ctx.Err()
	}
	if err := j.give(ctx, i.Text, protocol.Value(i.End)); err != nil {
		return tool.Result{}, err
	}
	return tool.Result{Text: fmt.Sprintf("[%d bytes were given to job %s]", len(i.Text), j.id)}, nil
}

// jobInput is what calls of job_stop ask for.
type jobInput struct {
	Job string `json:"job"`
}

// stopTool is job_stop.
type stopTool struct{ jobs *Jobs }

func (stopTool) Spec() tool.Spec {
	return tool.Spec{
		Name:        "job_stop",
		Description: "Kill a background job with all that it started, and show what it put out last.",
		InputSchema: jsontext.Value(`{"type":"object","properties":{"job":{"type":"string","description":"its name"}},` +
			`"required":["job"],"additionalProperties":false}`),
	}
}

func (stopTool) Scope(jsontext.Value) (tool.Scope, error) {
	return tool.Scope{Action: protocol.ActionNone, Summary: "stop a job"}, nil
}

func (t stopTool) Run(ctx context.Context, c tool.Call) (tool.Result, error) {
	var i jobInput
	if err := strict.Unmarshal(c.Input, &i, strict.RejectUnknown); err != nil {
		return tool.Result{}, err
	}
	j, err := t.jobs.find(i.Job)
	if err != nil {
		return tool.Result{}, err
	}
	j.stop("stopped by job_stop")
	for {
		changed := j.quiet(-1, true)
		if changed == nil {
			return tool.Result{Text: j.look(-1)}, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return tool.Result{}, ctx.Err()
		}
	}
}

// listTool is job_list.
type listTool struct{ jobs *Jobs }

func (listTool) Spec() tool.Spec {
	return tool.Spec{
		Name:        "job_list",
		Description: "List the background jobs of this agent.",
		InputSchema: jsontext.Value(`{"type":"object","properties":{},"additionalProperties":false}`),
	}
}

func (listTool) Scope(jsontext.Value) (tool.Scope, error) {
	return tool.Scope{Action: protocol.ActionNone, Summary: "list the jobs"}, nil
}

func (t listTool) Run(_ context.Context, c tool.Call) (tool.Result, error) {
	var none struct{}
	if err := strict.Unmarshal(c.Input, &none, strict.RejectUnknown); err != nil {
		return tool.Result{}, err
	}
	var b strings.Builder
	for _, j := range t.jobs.list() {
		b.WriteString(j.summary())
	}
	if b.Len() == 0 {
		return tool.Result{Text: "There are no jobs."}, nil
	}
	return tool.Result{Text: b.String()}, nil
}
