package httpapi_test

// approvalDocs documents the types and fields of approvals.
func approvalDocs() map[string]fieldDoc {
	return map[string]fieldDoc{
		"Approval":                   {about: "The demand for a person's approval before the first attempt."},
		"ApprovalRequest":            {about: "What a person decides about, beside the input."},
		"ApprovalDecision":           {about: "A person's decision about an approval. It is stored in the flight's history and in the audit log."},
		"Policy.approval":            {about: "demands a person's approval before the first attempt: until then, opens are answered `approval_pending`, and the job is not handed out. Absent: none is needed"},
		"Flight.approval":            {about: "the flight awaits approval"},
		"expires_ms":                 {about: "from the submission to the rejection, if nobody decides; 0: never", max: maxPolicyMS},
		"requested_by":               {about: "who asks for the approval"},
		"ApprovalRequest.expires_at": {about: "when the flight is rejected, if nobody decides; absent: never"},
		"ApprovalRequest.policy":     {about: "the policy of the flight"},
		"ApprovalRequest.retry":      {about: "how often the job is handed out again"},
		"ApprovalDecision.reason":    {about: "why; stored in the history", maxLength: 64 << 10},
		"ApprovalDecision.actor":     {about: "the person who decides; like the header Flightd-Actor", maxLength: 1024},
	}
}
