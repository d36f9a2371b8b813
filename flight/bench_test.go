package flight_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/flightd/flightd/flight"
)

func benchCommands() (*flight.Open, *flight.Report) {
	input, receipt := make([]byte, 256), make([]byte, 256)
	open := &flight.Open{Key: soloKey, Submission: flight.Submission{Fingerprint: flight.FingerprintBytes(input),
		Input:  flight.NewBlob("application/json", input, flight.MaxInput),
		Policy: flight.Policy{Recovery: flight.RecoveryResend, AttemptTimeout: 30 * time.Second, Retention: flight.DefaultRetention}},
		Session: flight.Session{ID: "ses_0123456789abcdef0123456789abcdef", Revision: 123456, Epoch: 1}, Nonce: nonce1,
		NotAfter: start.Add(15 * time.Second), Owner: "host-1:4711", StoreEpoch: 1}
	report := &flight.Report{Key: soloKey, Generation: 1, Token: flight.Token{StoreEpoch: 1, Number: 1},
		Outcome: flight.OutcomeSucceeded, ExternalID: "T-9", Body: flight.NewBlob("application/json", receipt, flight.MaxReceiptBody)}
	return open, report
}

// BenchmarkApply opens and reports the flight of a new key.
func BenchmarkApply(b *testing.B) {
	open, report := benchCommands()
	b.ReportAllocs()
	for b.Loop() {
		v, _ := flight.Apply(flight.View{Header: testHeader}, open)
		_, r := flight.Apply(v, report)
		require.Equal(b, flight.DecisionAccepted, r.Decision, r.Decision)
	}
}

func BenchmarkEncode(b *testing.B) {
	open, report := benchCommands()
	for name, c := range map[string]flight.Command{"open": open, "report": report} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			var buf []byte
			for b.Loop() {
				var err error
				buf, err = flight.Encode(c)
				require.NoError(b, err)
			}
			b.ReportMetric(float64(len(buf)), "bytes")
		})
	}
}

func BenchmarkDecode(b *testing.B) {
	open, report := benchCommands()
	for name, c := range map[string]flight.Command{"open": open, "report": report} {
		buf, err := flight.Encode(c)
		require.NoError(b, err)
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				_, err := flight.Decode(buf)
				require.NoError(b, err)
			}
		})
	}
}

// BenchmarkRecord encodes and decodes a finished flight without the bytes of input and receipt.
func BenchmarkRecord(b *testing.B) {
	open, report := benchCommands()
	v, _ := flight.Apply(flight.View{Header: testHeader}, open)
	v, _ = flight.Apply(v, report)
	f := *v.Flight
	r := *f.Receipt
	r.Body = r.Body.WithoutData()
	f.Input, f.Receipt = f.Input.WithoutData(), &r
	buf, err := flight.EncodeRecord(&f)
	require.NoError(b, err)
	b.Run("encode", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			_, err := flight.EncodeRecord(&f)
			require.NoError(b, err)
		}
		b.ReportMetric(float64(len(buf)), "bytes")
	})
	b.Run("decode", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			err := flight.DecodeRecord(buf, new(flight.Flight))
			require.NoError(b, err)
		}
	})
}

func BenchmarkCanonicalJSON(b *testing.B) {
	input := []byte(`{"request_id":"req-7","customer":{"id":"c-1","name":"Ann"},"lines":[{"sku":"a","count":2,"price":"12.50"},{"sku":"b","count":1,"price":"3.10"}],"trace_id":"0af7651916cd43dd8448eb211c80319c"}`)
	ignore := []string{"/trace_id"}
	b.ReportAllocs()
	b.SetBytes(int64(len(input)))
	for b.Loop() {
		_, err := flight.FingerprintJSON(input, ignore)
		require.NoError(b, err)
	}
}
