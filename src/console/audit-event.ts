// An event of the audit log, as GET events/ shows it.

export type AuditEvent = {
  id: number;
  at: string;
  type: string;
  actor: { kind: string; id: number | null; ip: string | null };
  subject: string;
  before: Record<string, unknown> | null;
  after: Record<string, unknown> | null;
  hash: string;
};
