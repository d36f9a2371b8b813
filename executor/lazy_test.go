package executor

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// A lazy context is a context like any other, whether somebody waits for it before it ends or not.
func TestLazyContextIsAContext(t *testing.T) {
	errGone, errOver := errors.New("gone"), errors.New("over")
	for _, waited := range []bool{false, true} {
		for _, by := range []error{errGone, errOver} {
			synctest.Test(t, func(t *testing.T) {
				parent, end := context.WithCancelCause(context.Background())
				defer end(nil)
				lazy := &lazyContext{parent: parent}
				require.NoError(t, lazy.Err())
				child, stop := context.Background(), func() {}
				if waited {
					child, stop = context.WithTimeout(lazy, time.Hour)
				}
				defer stop()
				if by == errGone {
					lazy.end(errGone)
					lazy.end(errors.New("too late"))
				} else {
					end(errOver)
				}
				require.ErrorIs(t, lazy.Err(), context.Canceled)
				<-lazy.Done()
				require.Equal(t, by, context.Cause(lazy))
				if waited {
					<-child.Done()
					require.Equal(t, by, context.Cause(child))
				}
				lazy.end(context.Canceled)
			})
		}
	}
}
