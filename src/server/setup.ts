// Creates the data of `agent setup`: the first administrator, an organization, and join keys. It changes nothing that
// exists.

import { operator } from "./audit/record.ts";
import type { Admin } from "./admin.ts";
import { parse } from "./http/parse-input.ts";
import { longestLifeOnCommandLineS } from "../api/tokens/registration-tokens.ts";
import { createRegistrationToken } from "./nodes/joining/registration-tokens.ts";
import { createUser } from "./users/users.ts";
import { createOrganization } from "./organizations/organizations.ts";
import { OrganizationRequest, type Organization } from "../api/organizations.ts";
import { queryNumber } from "./store/table.ts";
import { nodes } from "./store/tables/nodes.ts";
import { organizations } from "./store/tables/organizations.ts";
import { users } from "./store/tables/users.ts";
import { emailKey } from "../base/text.ts";
import { isHub } from "../protocol/routing/roles.ts";

type Org = Pick<Organization, "id" | "slug" | "network">;

export type SetupData = {
  hasUsers: boolean;
  hasOrgs: boolean;
  /** The organization to work on; undefined if there is none yet, or several and none was named. */
  org: Org | undefined;
  /** Nodes of that organization that are not revoked, and how many of them are lighthouses. */
  nodes: number;
  lighthouses: number;
  hasLighthouse: boolean;
  /** It has other nodes than lighthouses, so its join keys have been used on other machines. */
  hasOtherNodes: boolean;
  /** E-mail address of the only user, if that one has not signed in yet. */
  newcomer: string | undefined;
};

/** Changes nothing. `slug`: the organization that the administrator named. */
export async function readSetup({ db }: Pick<Admin, "db">, slug: string | undefined): Promise<SetupData> {
  const all = await organizations.all(db, { deletedAt: null });
  const only = all.length === 1 ? all[0] : undefined;
  const org = slug === undefined ? only : all.find((each) => each.slug === slug);
  const counting =
    "SELECT count(*) AS n FROM nodes WHERE org_id = $1 AND state <> 'revoked' AND is_lighthouse = $2";
  const countOf = async (isLighthouse: boolean) =>
    org === undefined ? 0 : queryNumber(db, counting, [org.id, isLighthouse ? 1 : 0]);
  const [lighthouses, others] = [await countOf(true), await countOf(false)];
  const userCount = await queryNumber(db, "SELECT count(*) AS n FROM users");
  const [newcomer] = userCount === 1 ? await users.all(db, { lastLoginAt: null }) : [];
  return {
    hasUsers: userCount > 0,
    hasOrgs: all.length > 0,
    org,
    nodes: lighthouses + others,
    lighthouses,
    hasLighthouse: lighthouses > 0,
    hasOtherNodes: others > 0,
    newcomer: newcomer?.email,
  };
}

/** The first user, who is staff and owns the organizations that setup makes. */
export function makeAdministrator(admin: Admin, login: { email: string; password: string }) {
  return createUser(admin, { ...login, isStaff: true }, operator);
}

/** `email`: of the owner; undefined: a staff user. */
export async function makeOrganization(
  admin: Admin,
  { slug, network, email }: { slug: string; network: string; email: string | undefined },
): Promise<Org> {
  const staff = await users.all(admin.db, { isStaff: true, isActive: true });
  const owner = email === undefined ? staff[0] : staff.find((user) => user.email === emailKey(email));
  const request = parse(OrganizationRequest, { slug, network });
  return createOrganization(
    admin,
    // Every engine reads version 1. An administrator may migrate later (version-migration.ts).
    { ...request, certificateVersion: 1 },
    { ownerId: owner?.id ?? null, ownerEmail: owner?.email ?? null, actor: operator },
  );
}

export type HubAtName = { id: number; name: string; slug: string };

/** The lighthouses and relays that other nodes look for at this host. */
export async function hubsAt({ db }: Pick<Admin, "db">, host: string): Promise<HubAtName[]> {
  const all = await organizations.all(db, { deletedAt: null });
  const slugs = new Map(all.map(({ id, slug }) => [id, slug]));
  const there = await nodes.all(db, { publicIp: host });
  return there.flatMap((node) => {
    const { id, name } = node;
    const slug = slugs.get(node.orgId);
    return slug === undefined || node.state === "revoked" || !isHub(node) ? [] : [{ id, name, slug }];
  });
}

/** A join key for one machine and one hour. */
export async function makeJoinKey(
  admin: Admin,
  org: Pick<Org, "id" | "slug">,
  role: "node" | "lighthouse",
): Promise<string> {
  const request = {
    uses: 1,
    expires_in: longestLifeOnCommandLineS,
    groups: [],
    is_lighthouse: role === "lighthouse",
  };
  const by = { userId: null, actor: operator };
  return (await createRegistrationToken(admin, org, request, by)).join_key;
}
