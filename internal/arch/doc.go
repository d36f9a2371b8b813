// Package arch has the architecture of the repository as tables, and tests that enforce them: a package imports only
// packages of lower layers, and each listed library is imported only by the packages listed with it.
package arch
