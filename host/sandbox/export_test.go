package sandbox

// HoldLoadingAgain has whoever asks for the module's dropped code wait until release
// is called.
func (m *Module) HoldLoadingAgain() (release func()) {
	if !m.program.again.TryAcquire(1) {
		panic("it is being loaded again")
	}
	return func() { m.program.again.Release(1) }
}

// Dropped tells whether the module's code is dropped.
func (m *Module) Dropped() bool {
	m.program.mu.Lock()
	defer m.program.mu.Unlock()
	return m.program.dropped
}

// CodeLoaded is what the code of all programs is counted to take, in bytes.
func (e *Engine) CodeLoaded() int64 { return e.codeBytes.Load() }
