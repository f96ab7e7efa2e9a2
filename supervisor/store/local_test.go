package store_test

import (
	"path/filepath"
	"testing"

	"nexus.internal/supervisor/store"
	"nexus.internal/supervisor/store/storetest"
)

func open(dir string) store.Store {
	return store.NewLocal(store.Options{Path: func(agent, part string) string { return filepath.Join(dir, agent+part) }, Dirs: []string{dir}, NoSync: true})
}

func TestMain(m *testing.M) { storetest.Main(m, open) }

func TestLocal(t *testing.T) { storetest.Run(t, open) }
