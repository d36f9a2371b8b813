package flight

// Fingerprint is a SHA-256 sum over the canonical input. The zero Fingerprint says that the key alone decides.
type Fingerprint [32]byte

// NoFingerprint says that the key alone decides: the first input stands and is what any later attempt sends.
var NoFingerprint Fingerprint

// Matches reports whether two submissions of one key mean the same intent. A side that says that the key alone
// decides matches everything.
func (f Fingerprint) Matches(g Fingerprint) bool {
	return f == g || f == NoFingerprint || g == NoFingerprint
}

// String gives none, or sha256: and hex.
func (f Fingerprint) String() string {
	if f == NoFingerprint {
		return "none"
	}
	return Digest(f).String()
}
