// Package clock reads the clock since boot, which continues while the machine is suspended, and defines an instant on
// all clocks of the machine. It also has a sleep that ends with its context, and jitter.
package clock
