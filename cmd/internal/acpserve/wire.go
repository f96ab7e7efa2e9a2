package acpserve

import "github.com/go-json-experiment/json/jsontext"

// The messages of the protocol, version 1, as far as they are used. What a client sends has pointers
// where a member may be null.

const protocolVersion = 1

// Codes of errors. The protocol gives -32000 to a login that is missing, which no error of ours says.
const (
	codeCancelled = -32800
	codeNotFound  = -32002
)

type initializeParams struct {
	ProtocolVersion    int `json:"protocolVersion" wire:"default"`
	ClientCapabilities *struct {
		Session *struct {
			Compaction jsontext.Value `json:"compaction" wire:"default"` // an object: it is supported
			Notices    jsontext.Value `json:"notices" wire:"default"`    // the same
		} `json:"session"`
	} `json:"clientCapabilities"`
}

type (
	initializeResult struct {
		ProtocolVersion   int          `json:"protocolVersion"`
		AgentCapabilities capabilities `json:"agentCapabilities"`
		AgentInfo         agentInfo    `json:"agentInfo"`
		AuthMethods       []struct{}   `json:"authMethods"`
	}
	capabilities struct {
		LoadSession         bool                `json:"loadSession"`
		PromptCapabilities  promptCapabilities  `json:"promptCapabilities"`
		MCPCapabilities     mcpCapabilities     `json:"mcpCapabilities"`
		SessionCapabilities sessionCapabilities `json:"sessionCapabilities"`
	}
	promptCapabilities struct {
		Image           bool `json:"image"`
		Audio           bool `json:"audio"`
		EmbeddedContext bool `json:"embeddedContext"`
	}
	mcpCapabilities struct {
		HTTP bool `json:"http"`
		SSE  bool `json:"sse"`
	}
	// sessionCapabilities are there or not: none has members.
	sessionCapabilities struct {
		List   struct{} `json:"list"`
		Resume struct{} `json:"resume"`
		Close  struct{} `json:"close"`
		Delete struct{} `json:"delete"`
	}
	agentInfo struct {
		Name    string `json:"name"`
		Title   string `json:"title"`
		Version string `json:"version"`
	}
)

type (
	// openParams are those of session/new, session/load and session/resume.
	openParams struct {
		SessionID             string      `json:"sessionId" wire:"default"`
		Cwd                   string      `json:"cwd"`
		AdditionalDirectories []string    `json:"additionalDirectories" wire:"default"`
		MCPServers            []mcpServer `json:"mcpServers" wire:"default"`
	}
	mcpServer struct {
		Name string `json:"name" wire:"default"`
	}
	openResult struct {
		SessionID     string         `json:"sessionId,omitzero"`
		Modes         *modeState     `json:"modes,omitzero"`
		ConfigOptions []configOption `json:"configOptions,omitzero"`
	}
	modeState struct {
		CurrentModeID  string `json:"currentModeId"`
		AvailableModes []mode `json:"availableModes"`
	}
	mode struct {
		ID          string `json:"id"`
		Name        string `json:"name"`
		Description string `json:"description,omitzero"`
	}
	configOption struct {
		ID           string   `json:"id"`
		Name         string   `json:"name"`
		Description  string   `json:"description,omitzero"`
		Category     string   `json:"category"`
		Type         string   `json:"type"` // always select
		CurrentValue string   `json:"currentValue"`
		Options      []choice `json:"options"`
	}
	choice struct {
		Value       string `json:"value"`
		Name        string `json:"name"`
		Description string `json:"description,omitzero"`
	}
	sessionParams struct {
		SessionID string `json:"sessionId"`
	}
	setModeParams struct {
		SessionID string `json:"sessionId"`
		ModeID    string `json:"modeId"`
	}
	setOptionParams struct {
		SessionID string         `json:"sessionId"`
		ConfigID  string         `json:"configId"`
		Value     jsontext.Value `json:"value"`
	}
	setOptionResult struct {
		ConfigOptions []configOption `json:"configOptions"`
	}
	listParams struct {
		Cwd    *string `json:"cwd"`
		Cursor *string `json:"cursor"`
	}
	listResult struct {
		Sessions   []sessionInfo `json:"sessions"`
		NextCursor string        `json:"nextCursor,omitzero"`
	}
	sessionInfo struct {
		SessionID string `json:"sessionId"`
		Cwd       string `json:"cwd"`
		Title     string `json:"title"`
		UpdatedAt string `json:"updatedAt"` // RFC 3339
	}
	none struct{}
)

type (
	promptParams struct {
		SessionID string  `json:"sessionId"`
		Prompt    []block `json:"prompt"`
	}
	promptResult struct {
		StopReason string `json:"stopReason"`
	}
	// block is a piece of content. Which members it has depends on its type.
	block struct {
		Type     string    `json:"type"`
		Text     string    `json:"text,omitzero" wire:"default"`     // text
		Data     string    `json:"data,omitzero" wire:"default"`     // image: base64
		MimeType *string   `json:"mimeType,omitzero"`                // image, resource_link
		URI      *string   `json:"uri,omitzero"`                     // image, resource_link
		Name     string    `json:"name,omitzero" wire:"default"`     // resource_link
		Resource *resource `json:"resource,omitzero" wire:"default"` // resource
	}
	resource struct {
		URI      string  `json:"uri"`
		MimeType *string `json:"mimeType,omitzero"`
		Text     *string `json:"text,omitzero"`
		Blob     *string `json:"blob,omitzero"` // base64
	}
)

func textBlock(text string) block { return block{Type: "text", Text: text} }

type (
	// sessionUpdate is the parameters of session/update.
	sessionUpdate struct {
		SessionID string `json:"sessionId"`
		Update    any    `json:"update"` // one of the types below
	}
	// chunk is a piece of a message: user_message_chunk, agent_message_chunk or agent_thought_chunk.
	chunk struct {
		Kind      string `json:"sessionUpdate"`
		Content   block  `json:"content"`
		MessageID string `json:"messageId,omitzero"`
	}
	// callUpdate is tool_call, with which a call begins, or tool_call_update; without Kind it is
	// the call of a question.
	callUpdate struct {
		Kind       string         `json:"sessionUpdate,omitzero"`
		ToolCallID string         `json:"toolCallId"`
		Title      string         `json:"title,omitzero"`
		ToolKind   string         `json:"kind,omitzero"`
		Status     string         `json:"status,omitzero"`
		Content    []callContent  `json:"content,omitzero"`
		Locations  []location     `json:"locations,omitzero"`
		RawInput   jsontext.Value `json:"rawInput,omitzero"`
	}
	// callContent is content or diff. A diff has the whole of a file, or a piece of it.
	callContent struct {
		Type    string  `json:"type"`
		Content *block  `json:"content,omitzero"`
		Path    string  `json:"path,omitzero"`
		OldText *string `json:"oldText,omitzero"` // nil where there is no file
		NewText *string `json:"newText,omitzero"`
	}
	location struct {
		Path string `json:"path"`
		Line uint64 `json:"line,omitzero"` // from 1
	}
	planUpdate struct {
		Kind    string      `json:"sessionUpdate"` // plan
		Entries []planEntry `json:"entries"`
	}
	planEntry struct {
		Content  string `json:"content"`
		Priority string `json:"priority"`
		Status   string `json:"status"`
	}
	modeUpdate struct {
		Kind          string `json:"sessionUpdate"` // current_mode_update
		CurrentModeID string `json:"currentModeId"`
	}
	optionsUpdate struct {
		Kind          string         `json:"sessionUpdate"` // config_option_update
		ConfigOptions []configOption `json:"configOptions"`
	}
	usageUpdate struct {
		Kind string `json:"sessionUpdate"` // usage_update
		Used uint64 `json:"used"`          // tokens of the context window
		Size uint64 `json:"size"`
		Cost *cost  `json:"cost,omitzero"`
	}
	cost struct {
		Amount   float64 `json:"amount"`
		Currency string  `json:"currency"`
	}
	// noticeUpdate and compactionUpdate are for clients that say that they show such.
	noticeUpdate struct {
		Kind        string `json:"sessionUpdate"` // notice
		Severity    string `json:"severity"`
		Title       string `json:"title"`
		Description string `json:"description,omitzero"`
	}
	compactionUpdate struct {
		Kind         string `json:"sessionUpdate"` // compaction_update
		CompactionID string `json:"compactionId"`
		Status       string `json:"status"`
		Error        string `json:"error,omitzero"`
	}
)

type (
	permissionParams struct {
		SessionID string       `json:"sessionId"`
		ToolCall  callUpdate   `json:"toolCall"`
		Options   []permission `json:"options"`
	}
	permission struct {
		OptionID string `json:"optionId"`
		Name     string `json:"name"`
		Kind     string `json:"kind"`
	}
	permissionResult struct {
		Outcome struct {
			Outcome  string `json:"outcome"` // selected or cancelled
			OptionID string `json:"optionId" wire:"default"`
		} `json:"outcome"`
	}
	cancelRequest struct {
		RequestID jsontext.Value `json:"requestId"`
	}
)
