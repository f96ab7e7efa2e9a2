package httpapi

import (
	"errors"
	"net/http"
	"strings"

	"nexus.internal/protocol"
)

// reason is what an error comes to for the asker, as protocol.RateLimited; "" for what is
// none of those. An error that is not the service's says that no whole answer came.
func reason(err error) string {
	e, ok := errors.AsType[*ServiceError](err)
	if !ok {
		if _, malformed := errors.AsType[*MalformedError](err); malformed {
			return ""
		}
		return protocol.Unreachable
	}
	if e.Unwrap() != nil {
		return ""
	}
	switch e.Code {
	case "rate_limit_exceeded", // OpenAI, Groq, our broker
		"rate_limit_error": // Anthropic
		return protocol.RateLimited
	case "invalid_api_key", // OpenAI
		"authentication_error", "permission_error", // Anthropic, our broker
		"missing_key": // our broker
		return protocol.Credentials
	case "insufficient_quota", "billing_hard_limit_reached", // OpenAI, with 429 and 400
		"billing_error",   // Anthropic
		"budget_exceeded": // LiteLLM, our broker
		return protocol.BudgetExceeded
	case "content_filter", "content_policy_violation": // Azure, OpenAI
		return protocol.ContentRefused
	case "server_error", "overloaded", // OpenAI
		"overloaded_error", "api_error", "timeout_error", // Anthropic
		"upstream_error", "upstream_unreachable": // our broker
		return protocol.Unreachable
	}
	text := strings.ToLower(e.Message)
	switch status := e.httpStatus(); {
	case strings.Contains(text, "credit balance is too low"): // Anthropic, with 400
		return protocol.BudgetExceeded
	case strings.Contains(text, "moderation"): // OpenRouter, with 403
		return protocol.ContentRefused
	case status == http.StatusUnauthorized, status == http.StatusForbidden:
		return protocol.Credentials
	case status == http.StatusPaymentRequired:
		return protocol.BudgetExceeded
	case status == http.StatusTooManyRequests:
		return protocol.RateLimited
	case status == http.StatusRequestTimeout, status >= 500:
		return protocol.Unreachable
	}
	return ""
}
