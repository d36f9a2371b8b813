// Package console tests the console in a real browser, Debian's chromium, against a real flightd dev and flightd serve.
//
// make console-test runs it, and installs the browser if it is missing; make screenshots writes the pictures of docs/img.
package console
