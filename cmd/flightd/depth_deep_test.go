//go:build deep

package main

// damages is the number of damaged ledgers that a test starts.
const damages = 1000

// restoreCycles is the number of restores that a test makes.
const restoreCycles = 300
