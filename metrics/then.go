package metrics

// then returns a function that calls count, and then next, which may be nil.
func then[A any](count, next func(A)) func(A) {
	if next == nil {
		return count
	}
	return func(a A) { count(a); next(a) }
}

func then2[A, B any](count, next func(A, B)) func(A, B) {
	if next == nil {
		return count
	}
	return func(a A, b B) { count(a, b); next(a, b) }
}

func then3[A, B, C any](count, next func(A, B, C)) func(A, B, C) {
	if next == nil {
		return count
	}
	return func(a A, b B, c C) { count(a, b, c); next(a, b, c) }
}

func then4[A, B, C, D any](count, next func(A, B, C, D)) func(A, B, C, D) {
	if next == nil {
		return count
	}
	return func(a A, b B, c C, d D) { count(a, b, c, d); next(a, b, c, d) }
}
