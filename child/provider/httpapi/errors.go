package httpapi

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"mime"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tidwall/gjson"

	"nexus.internal/child/provider"
	"nexus.internal/protocol"
	"nexus.internal/protocol/redact"
	"nexus.internal/protocol/textcut"
	"nexus.internal/protocol/tokencount"
)

const (
	maxErrorBody = 64 << 10         // bytes of an error's body that are read
	maxMessage   = 500              // bytes of a service's words that are passed on
	maxWait      = 60 * time.Second // the longest wait between two tries
)

// ServiceError is what a service answered instead of an answer.
type ServiceError struct {
	Status  int    // of HTTP; 0 for an error within a stream
	Code    string // as the service says it: "rate_limit_exceeded", "503", ""; cut at 500 bytes
	Message string // the service's words, cut at 500 bytes, without the key or a part of it
	// RetryAfter is how long the service wants to be left alone; negative if
	// it does not say.
	RetryAfter time.Duration
	final      bool // the service says that another try is of no use
	broker     bool // the broker refused the request: Message is ours and whole
}

// status is the error without the service's words.
func (e *ServiceError) status() string {
	if e.Status == 0 {
		return "the service reported an error"
	}
	return strings.TrimSpace(strconv.Itoa(e.Status) + " " + http.StatusText(e.Status))
}

func (e *ServiceError) Error() string {
	text := e.status()
	switch {
	case e.broker:
		return e.Message
	case e.Status == http.StatusUnauthorized:
		// What the service says here holds a part of the key.
		return text + ": the service refused the API key"
	case e.Message != "":
		return text + ": " + e.Message
	case e.Code != "":
		return text + ": " + e.Code
	case e.Status == http.StatusNotFound: // a page, as of a web server
		return text + ": perhaps base_url in config.json lacks a part, such as /v1"
	default:
		return text
	}
}

// windowCodes and windowWords are how services say that a request holds more
// than the model can take.
var (
	windowCodes = []string{
		"context_length_exceeded",   // OpenAI, Groq
		"exceed_context_size_error", // llama.cpp
		"request_too_large",         // Anthropic: more than 32 MB
	}
	windowWords = []string{
		"prompt is too long", "exceed context limit", // Anthropic
		"context window",                       // OpenAI
		"maximum context length",               // vLLM, OpenRouter
		"longer than the maximum model length", // vLLM
		"available context size",               // llama.cpp
		"context size has been exceeded",       // llama.cpp and LM Studio, within a stream
		"context length",                       // Ollama, LM Studio
		"maximum prompt length",                // xAI
		"maximum number of tokens",             // Gemini
	}
)

// Unwrap makes an error of the context window an ErrContextWindow. Services
// refuse a request by 400, 413 or 422, or in place of an answer. With any other
// status the words are about something else.
func (e *ServiceError) Unwrap() error {
	switch e.Status {
	case 0, http.StatusOK, http.StatusBadRequest, http.StatusRequestEntityTooLarge, http.StatusUnprocessableEntity:
	default:
		return nil
	}
	text := strings.ToLower(e.Message)
	if slices.Contains(windowCodes, e.Code) || slices.ContainsFunc(windowWords, func(words string) bool {
		return strings.Contains(text, words)
	}) {
		return provider.ErrContextWindow
	}
	return nil
}

// temporary reports whether another try may go better.
func (e *ServiceError) temporary() bool {
	if e.final || e.Unwrap() != nil {
		return false
	}
	switch e.Code {
	case "insufficient_quota", "budget_exceeded":
		return false
	case "rate_limit_exceeded", "server_error", "overloaded", // OpenAI and its like
		"overloaded_error", "rate_limit_error", "api_error", "timeout_error": // Anthropic
		return true
	}
	status := e.httpStatus()
	return status == http.StatusRequestTimeout || status == http.StatusTooManyRequests || status >= 500
}

// httpStatus is the status of HTTP, also of an error within a stream; 0 if it has none.
func (e *ServiceError) httpStatus() int {
	status := e.Status
	if status == 0 {
		status, _ = strconv.Atoi(e.Code) // OpenRouter puts the status there
	}
	return status
}

// refused reports whether the service refused what the request asks, which has that reason.
func (e *ServiceError) refused(reason string) bool {
	switch e.httpStatus() {
	case http.StatusBadRequest, http.StatusRequestEntityTooLarge, http.StatusUnprocessableEntity:
		return reason == "" || reason == protocol.ContentRefused
	}
	return reason == protocol.ContentRefused || e.Code == "invalid_request_error" || e.Unwrap() != nil
}

// refusesImages reports whether an error is that of a model or a service that
// cannot do with the images of the request.
func refusesImages(err error) bool {
	e, ok := errors.AsType[*ServiceError](err)
	if !ok {
		return false
	}
	switch e.Status {
	case http.StatusBadRequest, http.StatusNotFound, http.StatusUnsupportedMediaType, http.StatusUnprocessableEntity,
		http.StatusInternalServerError, http.StatusNotImplemented:
		text := strings.ToLower(e.Message)
		return strings.Contains(text, "image") || strings.Contains(text, "vision") || strings.Contains(text, "multimodal")
	}
	return false
}

// RefusesReasoning reports whether the service does not take the reasoning of
// earlier answers back, as where it was signed for somebody else.
func (e *ServiceError) RefusesReasoning() bool {
	if e.Status != http.StatusBadRequest && (e.Status != 0 || e.Code != "400") {
		return false
	}
	text := strings.ToLower(e.Message)
	return strings.Contains(text, "reasoning") || strings.Contains(text, "thinking") || strings.Contains(text, "signature")
}

// The faults of a stream that are not the service's words.
var (
	errIdle   = errors.New("the service fell silent")
	errCutOff = errors.New("the answer broke off before its end")
	errList   = errors.New("the service sent a malformed list")
	errLarge  = fmt.Errorf("the answer has more than %d MiB", maxList>>20)
)

// MalformedError says that an event of a stream makes no sense. No try follows:
// the service speaks another language.
type MalformedError struct{ Problem string }

func (e *MalformedError) Error() string { return "the service sent a malformed event: " + e.Problem }

// checkResponse turns every response that is no answer into an error and closes it. It
// reads a bounded part of the body. A success that is no event stream, where answer wants
// one, passes through answer, which counts what the broker charges.
func (s *Service) checkResponse(response *http.Response, answer *tokencount.Answer) (*http.Response, error) {
	contentType := response.Header.Get("Content-Type")
	if response.StatusCode/100 == 2 {
		if answer == nil {
			return response, nil
		}
		if answer.Form = tokencount.FormOf(contentType); answer.Form == tokencount.EventStream {
			return response, nil
		}
	}
	defer response.Body.Close()
	body, err := io.ReadAll(io.LimitReader(response.Body, maxErrorBody))
	if err != nil && len(body) == 0 {
		return nil, fmt.Errorf("%d %s: read its body: %w", response.StatusCode, http.StatusText(response.StatusCode), err)
	}
	if response.StatusCode/100 == 2 {
		_, _ = answer.Write(body)
		_, _ = io.Copy(answer, io.LimitReader(response.Body, maxResponse)) // what broke off counts as far as it came
		if !gjson.GetBytes(body, "error").Exists() {
			media, _, _ := mime.ParseMediaType(contentType)
			return nil, &MalformedError{Problem: "want a stream, have " + media}
		}
	}
	refused := ReadError(body)
	refused.Status = response.StatusCode
	refused.RetryAfter = retryAfter(response.Header)
	refused.final = response.Header.Get("X-Should-Retry") == "false" // OpenAI, Anthropic
	refused.broker = s.options.Broker && response.Header.Get(protocol.BrokerRefusal) != ""
	return nil, refused
}

// ReadError reads the error out of a body or an event: OpenAI's and Anthropic's
// {"error":{message, type, code}}, a bare {"error":"…"}, these members alone, or
// text. What OpenRouter passes on of the service behind it is added.
func ReadError(body []byte) *ServiceError {
	e := &ServiceError{RetryAfter: -1}
	if !gjson.ValidBytes(body) {
		if media := strings.TrimSpace(string(body)); !strings.HasPrefix(media, "<") {
			e.Message = textcut.Line(media, maxMessage)
		}
		return e
	}
	object := gjson.ParseBytes(body)
	if inner := object.Get("error"); inner.Type == gjson.String {
		e.Message = textcut.Line(inner.Str, maxMessage)
		return e
	} else if inner.IsObject() {
		object = inner
	}
	e.Message = textcut.Line(object.Get("message").String(), maxMessage)
	e.Code = textcut.Line(cmp.Or(object.Get("code").String(), object.Get("type").String()), maxMessage)
	if raw := object.Get("metadata.raw"); raw.Type == gjson.String {
		if behind := ReadError([]byte(raw.Str)).Message; behind != "" {
			e.Message = textcut.Line(strings.TrimPrefix(e.Message+": "+behind, ": "), maxMessage)
		}
	}
	return e
}

// retryAfter reads how long a service wants to be left alone, negative if it
// does not say: retry-after-ms (OpenAI), Retry-After in seconds or as a date
// (RFC 9110 §10.2.3).
func retryAfter(header http.Header) time.Duration {
	if ms, err := strconv.ParseFloat(header.Get("retry-after-ms"), 64); err == nil && ms >= 0 {
		return time.Duration(min(ms, 1e9) * float64(time.Millisecond))
	}
	value := header.Get("Retry-After")
	if seconds, err := strconv.ParseFloat(value, 64); err == nil && seconds >= 0 {
		return time.Duration(min(seconds, 1e6) * float64(time.Second))
	}
	if at, err := http.ParseTime(value); err == nil {
		return max(0, time.Until(at))
	}
	return -1
}

// delay says whether to try again after the failed try with that number, and
// when. A service that wants to be left alone for longer than a minute is.
func (s *Service) delay(err error, spoke bool, number int) (wait time.Duration, again bool) {
	if spoke || number >= s.options.MaxAttempts {
		return 0, false
	}
	backoff := min(s.options.RetryBackoff<<(number-1), maxWait)
	backoff -= rand.N(backoff/4 + 1) // so that many children do not come back at once
	if e, ok := errors.AsType[*ServiceError](err); ok {
		switch {
		case !e.temporary() || e.RetryAfter > maxWait:
			return 0, false
		case e.RetryAfter >= 0:
			return e.RetryAfter, true
		}
		return backoff, true
	}
	if _, malformed := errors.AsType[*MalformedError](err); malformed {
		return 0, false
	}
	return backoff, true // the connection failed, broke off or fell silent
}

// Explain makes of an error a *provider.Error, which names the provider, and
// takes the secrets out of whatever it says. What a broker refuses is not the
// provider's: its words say all.
func (s *Service) Explain(err error) error {
	explained := &provider.Error{Brief: brief(err), Reason: reason(err)}
	if e, ok := errors.AsType[*ServiceError](err); ok {
		clean := *e
		clean.Message, clean.Code = s.clean(e.Message), s.clean(e.Code)
		explained.RetryAfter = max(e.RetryAfter, 0)
		if clean.broker {
			explained.Err = &clean
			return explained
		}
		explained.Refused = e.refused(explained.Reason)
		err = &clean
	} else if text := err.Error(); s.clean(text) != text {
		err = errors.New(s.clean(text)) // what it wraps would show them
	}
	name := "provider " + s.options.Name
	explained.Brief, explained.Err = name+": "+explained.Brief, fmt.Errorf("%s: %w", name, err)
	return explained
}

func (s *Service) clean(text string) string { return s.secrets.Text(redact.StripURLs(text)) }

// brief is what an error comes to without the service's words.
func brief(err error) string {
	refused, isRefused := errors.AsType[*ServiceError](err)
	_, malformed := errors.AsType[*MalformedError](err)
	switch {
	case errors.Is(err, provider.ErrContextWindow):
		return provider.ErrContextWindow.Error()
	case isRefused && refused.broker:
		return "the broker refused the request: " + refused.Code // its words may hold a service's
	case isRefused:
		return refused.status()
	case malformed:
		return "the service sent a malformed event"
	}
	for _, fault := range []error{errIdle, errCutOff, errList, errLarge} {
		if errors.Is(err, fault) {
			return fault.Error()
		}
	}
	return redact.ScrubError(err)
}
