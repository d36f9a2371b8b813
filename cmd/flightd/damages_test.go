//go:build !deep

package main

// damages is the number of damaged ledgers that a test starts.
const damages = 12
