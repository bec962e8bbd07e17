// The CAs of an organization and their rotation, as GET ca/ shows them.

export type Authority = {
  fingerprint: string;
  kind: "overlay" | "x509";
  state: "next" | "active" | "former";
  trusted: boolean;
  not_before: string;
  not_after: string;
};
export type Rotation = {
  phase: "none" | "trust" | "issue" | "retire";
  paused: boolean;
  waiting_for: readonly number[];
  waiting_for_names: readonly string[];
  next_step_at: string | null;
  auto: boolean;
};
export type Authorities = {
  cas: readonly Authority[];
  rotation: Rotation;
  blocklist: { entries: number; limit: number };
};

export const phases: Readonly<Record<Rotation["phase"], string>> = {
  none: "No rotation is running.",
  trust: "Step 1 of 3: the machines learn to trust the new CAs.",
  issue: "Step 2 of 3: the machines get certificates of the new CAs.",
  retire: "Step 3 of 3: the machines stop trusting the former CAs.",
};
