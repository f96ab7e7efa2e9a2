package rpc

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"syscall"

	"nexus.internal/bridge/api"
	"nexus.internal/bridge/auth"
	"nexus.internal/bridge/sessions"
	"nexus.internal/protocol"
	"nexus.internal/protocol/safefile"
	"nexus.internal/protocol/suggest"
	"nexus.internal/protocol/transcript"
	"nexus.internal/supervisor"
)

// seeTurn is suggested where a turn was ended.
const seeTurn = "get_messages shows what the turn did until then, and another send goes on from there."

func apiError(kind api.ErrorKind, err error, suggestions ...string) *api.Error {
	return &api.Error{Kind: kind, Details: err.Error(), Suggestions: suggestions}
}

// askAgain is suggested where it is not known what became of a send.
const askAgain = "Send it again with the same request_id: that tells how it ended, or begins it."

// ofMachines is the part of the table for agents that several machines have.
func ofMachines(err error) *api.Error {
	switch {
	case errors.Is(err, supervisor.ErrMoved):
		return apiError(api.KindNodeUnreachable, err, askAgain)
	case errors.Is(err, supervisor.ErrNoRoom):
		return apiError(api.KindStorageFull, err, "Delete sessions that nobody needs, or start the servers with a larger --cluster-bytes, then send it again.")
	case errors.Is(err, supervisor.ErrNoMajority):
		return apiError(api.KindNoQuorum, err, askAgain)
	}
	return nil
}

// ofTurn is the part of the table for what an agent did not take, and for turns.
func ofTurn(err error) *api.Error {
	if e, ok := errors.AsType[*supervisor.CycleError](err); ok {
		return apiError(api.KindWouldDeadlock, e, "Answer first, and let the other agent ask again.")
	}
	switch {
	case errors.Is(err, supervisor.ErrQueueFull):
		return apiError(api.KindQueueFull, err, "Wait for a running send to end, or cancel one that waits.")
	case errors.Is(err, supervisor.ErrBusy):
		return apiError(api.KindAgentBusy, err, "Send it again later, or with when_busy queue or steer.")
	case errors.Is(err, supervisor.ErrFailed):
		return apiError(api.KindAgentFailed, err,
			startAfresh,
			"Or end it with destroy_agent.")
	case errors.Is(err, supervisor.ErrUnrecorded):
		return unrecorded(err)
	case errors.Is(err, supervisor.ErrStopped):
		return apiError(api.KindAgentStopped, err, "Send it again: that starts the agent.")
	case errors.Is(err, supervisor.ErrTurnTimeout):
		if e, ok := errors.AsType[*supervisor.TurnLimitError](err); ok {
			failure := apiError(api.KindTimeout, err, "Raise limits.turn_s of the agent by set_limits, or ask for less in one message.", seeTurn)
			failure.Limit = e.Limit()
			return failure
		}
		return apiError(api.KindTimeout, err, "Raise timeout_s, or ask for less in one message.", seeTurn)
	case errors.Is(err, supervisor.ErrNoRequest):
		return &api.Error{
			Kind: api.KindPermissionRequestNotFound, Details: "it was answered, has ended, or never was", Suggestions: []string{"See pending of get_permissions."},
		}
	case errors.Is(err, supervisor.ErrTurnConflict):
		return &api.Error{Kind: api.KindRequestIDConflict, Suggestions: []string{"Use a new request_id for a new message."}}
	}
	return nil
}

// ofServer is the part of the table for the server itself and the machine.
func ofServer(err error) *api.Error {
	if e, ok := errors.AsType[*auth.UnsavedError](err); ok {
		return apiError(api.KindNotRecorded, e, "Make room on the server's disk, or its home writable: the server saves it as soon as it can.")
	}
	switch {
	case errors.Is(err, supervisor.ErrDraining):
		return apiError(api.KindServerDraining, err, "Start the server again; saved agents come back when they are asked.")
	case errors.Is(err, auth.ErrNoMajority):
		return &api.Error{
			Kind: api.KindNoQuorum, Details: "the machines do not agree on keys, and nothing was accepted: " + err.Error(), Err: err,
			Suggestions: []string{"Send it again when a majority of the machines is there."},
		}
	case errors.Is(err, context.DeadlineExceeded):
		return &api.Error{
			Kind: api.KindTimeout, Details: "the agent's process did not answer in time",
			Suggestions: []string{"Send it again; if it happens again, destroy the agent and create it anew."},
		}
	case isAny(err, noFiles):
		return &api.Error{
			Kind: api.KindTooManyFiles, Details: "the server has as many files and connections open as it may", Suggestions: []string{closeFiles},
		}
	case errors.Is(err, auth.ErrTooMany):
		return apiError(api.KindTooManyKeys, err, "See list_keys and revoke_key.")
	}
	if e, ok := errors.AsType[*protocol.CodeError](err); ok && e.Kind == protocol.MissingChecker {
		return &api.Error{Kind: api.KindCheckerNotFound, Details: e.Message, Suggestions: []string{"Install one of them where the server's PATH finds it."}}
	} else if ok {
		return &api.Error{Kind: api.KindExecutionError, Details: e.Message}
	}
	if errors.Is(err, fs.ErrPermission) || errors.Is(err, fs.ErrNotExist) || isAny(err, noRoom) { // the home may not be written, or cannot be
		return unrecorded(err)
	}
	return nil
}

// noRoom is what the system says of a disk that is full, broken or read-only; noFiles, where
// it opens no more files.
var (
	noRoom  = []error{syscall.ENOSPC, syscall.EDQUOT, syscall.EROFS, syscall.EIO}
	noFiles = []error{syscall.EMFILE, syscall.ENFILE}
)

const closeFiles = "Close connections that nobody needs, or start the server where it may open more files, then send it again."

func isAny(err error, causes []error) bool {
	return slices.ContainsFunc(causes, func(cause error) bool { return errors.Is(err, cause) })
}

// MendDir is the beginning of what to do about a working directory in which no process can
// be, for the reason err; nil is a link in its place.
func MendDir(err error) string {
	switch {
	case err == nil:
		return "Put a directory in place of the link, an empty one will do"
	case errors.Is(err, fs.ErrPermission):
		return "Let the server's user enter the directory"
	}
	return "Make the directory again, an empty one will do"
}

// MoveAgent is how an agent that can start leaves its working directory.
func MoveAgent(id string) string {
	return `set_cwd {"cwd":"/DIR"} of agent ` + id + " moves it elsewhere."
}

func unrecorded(err error) *api.Error {
	mend := "Make room on the server's disk, or its home writable"
	if errors.Is(err, fs.ErrNotExist) {
		mend = "Put the server's home back where it was"
	}
	return apiError(api.KindNotRecorded, err, mend+", then send it again: nothing was accepted.")
}

// ofProcess is the part of the table for what agents' processes did.
func ofProcess(err error) *api.Error {
	if e, ok := errors.AsType[*supervisor.SessionError](err); ok {
		reason := sessions.ErrInUse
		if !e.InUse {
			reason = fmt.Errorf("%w: %s", sessions.ErrUnreadable, e.Reason)
		}
		return ofSession(&sessions.Error{Name: e.Name, Err: reason})
	}
	if e, ok := errors.AsType[*supervisor.DirError](err); ok {
		again := ", then send it again."
		if _, failed := errors.AsType[*supervisor.CrashError](err); failed {
			again = ", and call shutdown of agent " + e.Agent + ": its next request starts it. Then " + MoveAgent(e.Agent)
		}
		return &api.Error{
			Kind: api.KindStartFailed, Details: "start the agent's process: " + e.Error(), Suggestions: []string{MendDir(e) + again},
		}
	}
	if e, ok := errors.AsType[*supervisor.StartError](err); ok {
		failure := &api.Error{Kind: api.KindStartFailed, Details: "start the agent's process: " + e.Error()}
		if _, alien := errors.AsType[*supervisor.HandshakeError](e); alien {
			failure.Suggestions = []string{"Install nexus and nexus-child of the same version."}
			return failure
		}
		failure.Suggestions = []string{afterNoStart(e)}
		limited(failure, e.Exit)
		return failure
	}
	if e, ok := errors.AsType[*supervisor.CrashError](err); ok {
		details := e.Error()
		if e.Exit != nil && e.Exit.Stderr != "" {
			details += "; its last words: " + e.Exit.Stderr
		}
		failure := &api.Error{Kind: api.KindChildCrashed, Details: details, Suggestions: []string{"Send it again" + withNewID + ": the agent comes back with its conversation."}}
		if e.Reason == supervisor.ReasonStart { // the agent has failed
			failure.Suggestions = []string{startAfresh}
		}
		limited(failure, e.Exit)
		return failure
	}
	if e, ok := errors.AsType[*supervisor.CommandError](err); ok {
		return &api.Error{
			Kind: api.KindInvalidParams, About: "too large for the agent", Details: e.Error(), Suggestions: []string{"Send less, or attach files by their path."},
		}
	}
	e, ok := errors.AsType[*supervisor.ChildError](err)
	if ok && e.Reason == protocol.Busy {
		return apiError(api.KindAgentBusy, e, "Send it again when the turn or the compaction has ended. A turn can be cancelled.")
	}
	if ok && (e.Reason == protocol.StorageFull || e.Reason == protocol.NotSaved) {
		return ofChange(e)
	}
	return nil
}

// afterNoStart says what can be done where an agent's process did not start.
func afterNoStart(e *supervisor.StartError) string {
	switch {
	case e.Exit != nil:
		return "Correct what the process complains of, then send it again."
	case isAny(e, noRoom):
		return "Make room on the server's disk, or its home writable, then send it again."
	case isAny(e, noFiles):
		return closeFiles
	}
	return "Correct what the details name, then send it again."
}

func limited(e *api.Error, exit *supervisor.Exit) {
	if exit != nil && exit.Limit != "" {
		e.Limit = exit.Limit
		e.Suggestions = append(e.Suggestions, "Ask for less at once, or raise the limit by set_limits: it holds from the agent's next process on.")
	}
}

// ofChange is for a change of an agent that its session cannot hold.
func ofChange(e *supervisor.ChildError) *api.Error {
	kind, suggestion := api.KindStorageFull, "Make room on the disk of the server's home, then send it again"
	if e.Reason == protocol.NotSaved {
		kind, suggestion = api.KindNotRecorded, "See that the agent's session can be written, then send it again"
	}
	if e.Holds == nil {
		suggestion += ": nothing has changed."
	} else {
		suggestion += ": what it takes from the agent holds already."
	}
	return &api.Error{Kind: kind, Details: e.Message, Suggestions: []string{suggestion}}
}

// ofSession is the part of the table for saved sessions.
func ofSession(err error) *api.Error {
	e, ok := errors.AsType[*sessions.Error](err)
	if !ok {
		return nil
	}
	_, damaged := errors.AsType[*transcript.LineError](e.Err)
	switch {
	case errors.Is(e.Err, sessions.ErrNotFound):
		return &api.Error{
			Kind: api.KindSessionNotFound, About: ClipName(e.Name), Details: "no session of that name is saved", Suggestions: []string{"See list_sessions."},
		}
	case errors.Is(e.Err, sessions.ErrExists):
		return &api.Error{
			Kind: api.KindSessionExists, About: e.Name, Details: "there is a session of that name",
			Suggestions: []string{"Choose another name, or delete or rename the one that is there."},
		}
	case errors.Is(e.Err, sessions.ErrInUse):
		return &api.Error{
			Kind: api.KindSessionInUse, Details: "a process has session " + e.Name + " open", Suggestions: []string{"End the nexus-child that has it open."},
		}
	case damaged, errors.Is(e.Err, sessions.ErrUnreadable):
		mend := `Correct its file, or delete it (delete_session {"session_name":"` + e.Name + `"}).`
		if strings.Contains(e.Err.Error(), "/"+e.Name+".jsonl: "+safefile.ErrNotRegular.Error()) { // which no delete takes; a child says it in words
			mend = "Move away what stands in the place of its file."
		}
		return &api.Error{Kind: api.KindSessionDamaged, About: e.Name, Details: e.Err.Error(), Suggestions: []string{mend}}
	}
	return nil
}

// unknownMethod says that there is no such method where it was called; elsewhere says that
// there is one of that name at another place.
func unknownMethod(name string, called api.Scope, elsewhere bool) error {
	e := &api.Error{Kind: api.KindMethodNotFound, About: ClipName(name)}
	suggestion := "See rpc.discover at POST / for all methods."
	switch {
	case elsewhere:
		e.Details = fmt.Sprintf("%s is no %s method", ClipName(name), called)
		suggestion = "Methods of an agent are called at POST /agent/{id}."
		if called == api.Agent {
			suggestion = "Global methods are called at POST / or /rpc."
		}
	default:
		names := make([]string, len(api.Methods))
		for i, m := range api.Methods {
			names[i] = m.Name
		}
		if near := suggest.Nearest(ClipName(name), names); near != "" {
			e.Details = fmt.Sprintf("did you mean %s?", near)
		}
	}
	e.Suggestions = []string{suggestion}
	return e
}
