// The record of one organization in the daemon's state. What happens without a request is saved later if it cannot be saved now.

import { messageOf } from "../base/errors.ts";
import type { Log } from "../base/log.ts";
import type { Organization } from "../node/files/organizations.ts";
import type { OrganizationRecord } from "./organization-record.ts";
import type { StateStore } from "./state.ts";

type Deps = { store: Pick<StateStore, "putRecord">; log: Log };

export class StoredRecord {
  readonly #slug: string;
  readonly #deps: Deps;
  #current: OrganizationRecord;
  /** The registration that connection and engine use: `register --force` replaces the directory. */
  #registration: string;
  /** The record could not be written. */
  #isUnsaved = false;

  constructor(record: OrganizationRecord, organization: Organization, deps: Deps) {
    this.#slug = organization.slug;
    this.#deps = deps;
    this.#current = record;
    this.#registration = registrationOf(organization);
  }

  get current(): OrganizationRecord {
    return this.#current;
  }

  /** The record with a change, which is not made. For a caller that stores several records together, and then calls `use`. */
  with(change: Partial<OrganizationRecord>): OrganizationRecord {
    return { ...this.#current, ...change, registration: this.#registration };
  }

  /** Takes over a record that was stored. */
  use(record: OrganizationRecord): void {
    this.#current = record;
    this.#isUnsaved = false;
  }

  /** Notes a change that need not be saved before the next one. */
  note(change: Partial<OrganizationRecord>): void {
    this.#current = { ...this.#current, ...change };
  }

  /** Saves a change. If this fails, `retry` saves it. */
  trySave(change: Partial<OrganizationRecord>): void {
    this.#current = this.with(change);
    try {
      this.#deps.store.putRecord(this.#slug, this.#current);
      this.#isUnsaved = false;
    } catch (error) {
      this.#isUnsaved = true;
      const reason = messageOf(error);
      this.#deps.log.error("Cannot save the state of an organization", { team: this.#slug, reason });
    }
  }

  /** Saves what could not be saved. */
  retry(): void {
    if (this.#isUnsaved) this.trySave({});
  }

  /** Notes the registration of the present files. Returns whether it is another one. */
  renew(organization: Organization): boolean {
    const registration = registrationOf(organization);
    if (registration === this.#registration) return false;
    this.#registration = registration;
    return true;
  }
}

function registrationOf({ config }: Organization): string {
  return `${config.node_id} ${config.registered_at}`;
}

/** Whether the record is of an earlier registration: the organization was registered again while no daemon ran. */
export function isOfFormerRegistration({ registration }: OrganizationRecord, present: Organization): boolean {
  return registration !== undefined && registration !== registrationOf(present);
}
