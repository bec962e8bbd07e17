// For all admin commands: opening the control plane's data, and the plan of a --dry-run.

import { join } from "node:path";
import { AppError } from "../../errors.ts";
import { planFile } from "../../plan-file.ts";
import type { Admin } from "../../server/admin.ts";
import type { OrganizationAccess } from "../../server/http/route.ts";
import type { Context } from "../command.ts";
import { readDataOptions } from "../server-flags.ts";

/** Runs `work` on the data that the flags name, whether `serve` runs or not. `begins`: may create the data. */
export async function onData<T>(
  { values, system, settings }: Context,
  work: (admin: Admin) => Promise<T>,
  { begins = false } = {},
): Promise<T> {
  const { withAdmin } = await import("../../server/admin.ts");
  const { requireData } = await import("../../server/store/data-directory.ts");
  const options = await readDataOptions(values, system);
  if (!begins || settings.dryRun) requireData(options);
  return withAdmin(options, system, work);
}

/** The same for one organization. */
export async function onOrganization<T>(
  context: Context,
  slug: string,
  work: (admin: Admin, org: Pick<OrganizationAccess, "id" | "slug">) => Promise<T>,
): Promise<T> {
  const { organizationBySlug } = await import("../../server/policy/organizations.ts");
  return onData(context, async (admin) => work(admin, await organizationBySlug(admin.db, slug)));
}

/** The names that are no groups yet. Commands create a missing group, so a typing error creates one, too. */
export async function missingGroups(
  { db }: Admin,
  org: Pick<OrganizationAccess, "id" | "slug">,
  names: readonly string[],
): Promise<string[]> {
  const { listGroups } = await import("../../server/policy/groups.ts");
  const known = new Set((await listGroups(db, org)).map(({ name }) => name));
  return [...new Set(names)].filter((name) => !known.has(name));
}

/** Nothing with --json: the result holds them. */
export function sayNewGroups({ json, say }: Context["output"], names: readonly string[]): void {
  if (json || names.length === 0) return;
  say(`New ${names.length === 1 ? "group" : "groups"}: ${names.join(", ")}`);
}

/** With --dry-run: prints the files that would change (the database and `keys`), and returns true. */
export async function onlyPlanned(
  { settings, values, system, output }: Context,
  keys: readonly string[] = [],
): Promise<boolean> {
  if (!settings.dryRun) return false;
  const { dataDirectory, databaseUrl } = await readDataOptions(values, system);
  const database = databaseUrl === undefined ? [join(dataDirectory, "control.db")] : [];
  output.plan([...database, ...keys].map((path) => planFile(path, "", 0o600, { secret: true })));
  return true;
}

/** The word ID of a command line. */
export function readId(id: string): number {
  if (!/^\d{1,15}$/.test(id)) throw new AppError("usage", `ID must be a number, not "${id}"`);
  return Number(id);
}
