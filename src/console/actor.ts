// Who did what an event tells.

import type { AuditEvent } from "./audit-event.ts";

/** E-mail addresses by user. */
export type Names = ReadonlyMap<number, string>;

export function actorOf({ actor }: Pick<AuditEvent, "actor">, names: Names): string {
  const email = actor.kind === "person" && actor.id !== null ? names.get(actor.id) : undefined;
  const numbered = actor.id === null || actor.id === 0 ? actor.kind : `${actor.kind} ${actor.id}`;
  const who = email ?? numbered;
  return actor.ip === null ? who : `${who} from ${actor.ip}`;
}
