package flight

// Fingerprint is a SHA-256 sum over the canonical input. The zero Fingerprint means that the key alone identifies the intent.
type Fingerprint [32]byte

// NoFingerprint means that the key alone identifies the intent: the first input is stored, and every later attempt sends it.
var NoFingerprint Fingerprint

// Matches reports whether two submissions of one key have the same intent. NoFingerprint on either side matches everything.
func (f Fingerprint) Matches(g Fingerprint) bool {
	return f == g || f == NoFingerprint || g == NoFingerprint
}

// String returns "none", or "sha256:" and the fingerprint in hex.
func (f Fingerprint) String() string {
	if f == NoFingerprint {
		return "none"
	}
	return Digest(f).String()
}
