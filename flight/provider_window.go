package flight

import "time"

// clockDriftDivisor bounds how much slower than real time the ledger's time may run: by a twentieth of the elapsed time.
const clockDriftDivisor = 20

// providerWindowEnd is the ledger time from which the provider may have forgotten our key; ok is false where it never does.
func (f *Flight) providerWindowEnd() (end Time, ok bool) {
	w := f.Policy.ProviderWindow
	if w <= 0 || f.FirstSend == 0 {
		return 0, false
	}
	return f.FirstSend + Time((w - w/clockDriftDivisor).Milliseconds()), true
}

// ResendUntil is the ledger time until which the effect may be started again under our key: its attempt then ends before the
// provider may have forgotten the key. ok is false where there is no bound. Compare it with Header.Latest.
func (f *Flight) ResendUntil() (until Time, ok bool) {
	end, ok := f.providerWindowEnd()
	return end - Time(0).Add(f.Policy.AttemptTimeout), ok
}

// ResendLeft is the time in which a caller that is answered now may still start the effect. It is bounded for a tainted
// flight with recovery resend: the effect may have happened, and only the provider's memory of our key prevents a second
// one. It is 0 when the window is over, and ok is false where there is no bound.
func (f *Flight) ResendLeft(now Time) (left time.Duration, ok bool) {
	until, ok := f.ResendUntil()
	if !ok || !f.Tainted() || f.Policy.Recovery != RecoveryResend {
		return 0, false
	}
	return max(0, until.Until(now)), true
}

// WithinWindow reports whether the provider's memory of our key permits a new attempt at the given time.
func (f *Flight) WithinWindow(now Time) bool {
	until, ok := f.ResendUntil()
	return !ok || now < until
}

// providerRemembersKey reports whether the provider still knew our key at the given time, so that an answer received by then
// was given under that key.
func (f *Flight) providerRemembersKey(now Time) bool {
	end, ok := f.providerWindowEnd()
	return !ok || now < end
}
