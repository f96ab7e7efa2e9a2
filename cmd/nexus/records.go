package main

import (
	"nexus.internal/supervisor/broker"
	"nexus.internal/supervisor/store"
)

// agentStore is what is kept of agents, on disk and by the broker.
type agentStore struct {
	store.Store
	models *broker.Broker
}

func (s agentStore) Forget(agent string) { s.models.Forget(agent) }
