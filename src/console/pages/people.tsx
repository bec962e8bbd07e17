// Members of the organization and open invitations.

import { apiPath, type Role } from "../../api/endpoint.ts";
import { membersApi, type ListedMember as Member, type NewMember } from "../../api/members.ts";
import { useState } from "preact/hooks";
import { memberSessionsApi } from "../../api/sessions.ts";
import { request, call, type ApiError } from "../contact/api.ts";
import { mayAdminister, me, organization, currentSlug } from "../contact/me.ts";
import { removedWords } from "./removed-words.ts";
import { useList } from "../contact/resource.ts";
import { pathOf } from "../frame/router.ts";
import { now } from "../words/times.ts";
import { Button, CloseEnd } from "../ui/button.tsx";
import { tell } from "../ui/toast.tsx";
import { Choice, Text, useSending } from "../ui/form.tsx";
import { Avatar, Icon, Sign } from "../ui/icon.tsx";
import { List, textColumn } from "../ui/lists/list.tsx";
import { Confirm, Dialog, FormDialog } from "../ui/dialog.tsx";
import { Menu } from "../ui/menu.tsx";
import { isNarrow } from "../ui/narrow.ts";
import { Page, Panel } from "../ui/page.tsx";
import { Line, State, When } from "../ui/parts.tsx";
import type { Column } from "../ui/lists/rows.tsx";
import { timeColumn } from "../ui/lists/time-column.ts";
import { SessionsDialog } from "../account/session-list.tsx";
import { OwnerNumber, useEnding } from "./user-fields.tsx";
import { plural } from "../words/numbers.ts";

/** The open dialog. `member`: the one it is about; of an invitation, the one who gets a new link, undefined for a new member. */
type Asked =
  { dialog: "invite"; member?: Member } | { dialog: "change" | "remove" | "sessions"; member: Member };

type Ask = (asked: Asked) => void;

const membersPath = (slug: string) => apiPath(membersApi.list, { slug });

const roles = [
  ["owner", "Owner", "everything; names owners, and may delete the organization"],
  ["admin", "Admin", "nodes, access, members and settings"],
  ["member", "Member", "sees nodes, rules and activity; manages own nodes"],
] as const;

export function People() {
  const slug = currentSlug.value ?? "";
  const [asked, setAsked] = useState<Asked>();
  const close = () => setAsked(undefined);
  const read = useList(apiPath(membersApi.list, { slug }, { page_size: "1000" }));
  const { data = [] } = read;
  const active = data.filter(({ state }) => state === "active");
  const invited = data.length - active.length;
  const fact = `${plural(active.length, "member")}${invited === 0 ? "" : `, ${invited} invited`}`;
  return (
    <Page
      title="Members"
      fact={data.length === 0 ? undefined : fact}
      terminal={{ command: ["member", "list", slug], call: ["GET", membersPath(slug)] }}
      actions={
        mayAdminister.value ? (
          <Button kind="primary" icon="plus" onClick={() => setAsked({ dialog: "invite" })}>
            Invite
          </Button>
        ) : null
      }
    >
      <List
        label="Members"
        path={membersPath(slug)}
        read={read}
        columns={isNarrow.value ? narrowColumns(slug, setAsked) : columnsFor(slug, setAsked)}
        isShort={true}
        keyOf={({ id }: Member) => id}
        empty="There are no members yet."
      >
        <WithoutFactor slug={slug} active={active} />
      </List>
      <Panel title="Roles">
        <ul class="lines roles">
          {roles.map(([role, title, words]) => (
            <li key={role}>
              <b>{title}</b>
              <span class="quiet">{words}</span>
              <small class="faint num">{active.filter((each) => each.role === role).length}</small>
            </li>
          ))}
        </ul>
      </Panel>
      {asked === undefined ? null : <OpenDialog {...asked} close={close} />}
    </Page>
  );
}

function OpenDialog({ dialog, member, close }: Asked & { close(): void }) {
  if (dialog === "invite") return <Invite invited={member} close={close} />;
  const OfMember = memberDialogs[dialog];
  return <OfMember member={member} close={close} />;
}

/** How many could be signed in by a password alone, unless the organization forbids that already. */
function WithoutFactor({ slug, active }: { slug: string; active: readonly Member[] }) {
  const without = active.filter(({ second_factors }) => second_factors?.length === 0).length;
  if (without === 0 || organization.value?.second_factor_required === true) return null;
  return (
    <small class="quiet group tight">
      <span class="st">
        <Sign name="warn" />
        {without} {without === 1 ? "has" : "have"} no second factor
      </span>{" "}
      <a href={`${pathOf(slug, "settings")}#sign-in`}>Require one</a>
    </small>
  );
}

const longAwayMs = 30 * 86_400_000;
const factorWords = { totp: "app", passkey: "passkey" } as const;

/** The sign of a node's state that looks alike, and the word that is shown. */
function stateOf({ state, is_disabled, last_seen_at: seen }: Member) {
  if (is_disabled) return ["revoked", "disabled"] as const;
  if (state !== "active") return ["waiting", "invited"] as const;
  const isLongAway = typeof seen === "string" && Date.parse(seen) < now.value - longAwayMs;
  return isLongAway ? (["away", "not seen for a month"] as const) : (["online", "active"] as const);
}

const factorsOf = ({ second_factors: all }: Member) =>
  all?.length === 0 ? "none" : (all?.map((each) => factorWords[each]).join(", ") ?? "");

const columnsFor = (slug: string, ask: Ask): Column<Member>[] => [
  emailColumn,
  textColumn("role", "Role", 1, ({ role }) => role),
  // Other members are not told.
  ...(mayAdminister.value ? [factorColumn] : []),
  stateColumn,
  nodesColumn(slug),
  ...(mayAdminister.value ? [seenColumn, actionsColumn(ask)] : [sinceColumn]),
];

/** Name and state, then role and actions. */
const narrowColumns = (slug: string, ask: Ask) =>
  ["email", "state", "role", "actions"].flatMap((key) =>
    columnsFor(slug, ask).filter((each) => each.key === key),
  );

const emailColumn: Column<Member> = {
  ...textColumn("email", "Member", 3.5, ({ email }: Member) => email),
  cell: ({ email }) => (
    <span class="st" title={email}>
      <Avatar name={email} />
      <bdi class="name cut">{email}</bdi>
    </span>
  ),
};

const factorColumn: Column<Member> = {
  key: "factor",
  title: "Second factor",
  width: 1.5,
  text: factorsOf,
  isNatural: true,
  cell: (member) =>
    member.second_factors?.length ? (
      <span class="st">
        <Icon name={member.second_factors.includes("passkey") ? "passkey" : "phone"} />
        {factorsOf(member)}
      </span>
    ) : (
      <span class="faint">{factorsOf(member) || "–"}</span>
    ),
};

const stateColumn: Column<Member> = {
  key: "state",
  title: "State",
  width: 2,
  text: (member) => stateOf(member)[1],
  cell: (member) => {
    const [name, word] = stateOf(member);
    if (member.state === "active") return <State name={name} word={word} />;
    const invited = (
      <>
        invited, ends <When at={member.expires_at} />
      </>
    );
    return <State name={name} word={invited} />;
  },
};

const nodesColumn = (slug: string): Column<Member> => ({
  key: "nodes",
  title: "Nodes",
  width: 0.75,
  isNumber: true,
  text: ({ node_count }) => `${node_count}`,
  cell: ({ user_id, email, node_count }) =>
    node_count === 0 ? (
      <span class="faint">0</span>
    ) : (
      <a href={`${pathOf(slug, "nodes")}?owner=${user_id}`}>
        {node_count}
        <span class="unseen"> nodes of {email}</span>
      </a>
    ),
  compare: (a, b) => a.node_count - b.node_count,
});

const never = () => "–";
const seenColumn: Column<Member> = {
  ...timeColumn<Member>("seen", "Last seen", ({ last_seen_at }) => last_seen_at ?? null, { never }),
  isNumber: true,
};
const sinceColumn = timeColumn<Member>("since", "Since", ({ created_at }) => created_at);

const actionsColumn = (ask: Ask): Column<Member> => ({
  key: "actions",
  title: "Actions",
  width: 2.5,
  isNumber: true,
  text: () => "",
  cell: (member) => {
    // Owners are changed by owners.
    if (member.role === "owner" && organization.value?.role !== "owner") return "";
    return member.state === "active" ? actionsOnMember(member, ask) : actionsOnInvited(member, ask);
  },
});

const actionsOnMember = (member: Member, ask: Ask) => (
  <Menu label={`Actions for ${member.email}`} isSmall={true}>
    <button type="button" onClick={() => ask({ dialog: "change", member })}>
      Role…
    </button>
    <button type="button" onClick={() => ask({ dialog: "sessions", member })}>
      Sessions
    </button>
    <button type="button" class="danger" onClick={() => ask({ dialog: "remove", member })}>
      Remove…
    </button>
  </Menu>
);

const actionsOnInvited = (member: Member, ask: Ask) => (
  <Menu label={`Actions for ${member.email}`} isSmall={true}>
    <button type="button" onClick={() => ask({ dialog: "invite", member })}>
      New link or role…
    </button>
    <button type="button" class="danger" onClick={() => ask({ dialog: "remove", member })}>
      Withdraw…
    </button>
  </Menu>
);

/** Owners are named by owners. */
const offeredRoles = () =>
  roles
    .filter(([role]) => role !== "owner" || organization.value?.role === "owner")
    .map(([role, title, words]) => [role, `${title}: ${words}`] as const);

/** `invited`: the one whose link was lost, or did not arrive; undefined for a new member. */
function Invite({ invited, close }: { invited: Member | undefined; close(): void }) {
  const slug = currentSlug.value ?? "";
  const [email, setEmail] = useState(invited?.email ?? "");
  const [role, setRole] = useState<Role>(invited?.role ?? "member");
  const [made, setMade] = useState<NewMember>();
  const form = useSending(request(membersApi.create, { slug }, { email, role }), membersPath(slug), setMade);
  if (made !== undefined) return <Invited made={made} close={close} />;
  return (
    <FormDialog
      title={invited === undefined ? "Invite a member" : `New link for ${invited.email}`}
      close={close}
      hasUnsaved={email !== (invited?.email ?? "")}
      action={invited === undefined ? "Invite" : "Make the link"}
      form={form}
      shown={["email", "role"]}
      command={["member", "create", slug, email, "--role", role]}
    >
      {invited === undefined ? null : <p>The link that was made before stops working.</p>}
      <Text
        label="E-mail"
        errors={form.error?.fields["email"]}
        value={email}
        set={setEmail}
        control={{ type: "email", required: true, autocomplete: "off", readonly: invited !== undefined }}
      />
      <RoleChoice error={form.error} value={role} set={setRole} />
    </FormDialog>
  );
}

/** The link is shown once: only the button closes the dialog then. */
function Invited({ made, close }: { made: NewMember; close(): void }) {
  const isActive = made.state === "active";
  return (
    <Dialog title={isActive ? "Added" : "Invited"} close={made.link === undefined ? close : () => undefined}>
      {made.link === undefined ? (
        <p>
          <bdi>{made.email}</bdi> {isActive ? "is a member now." : "gets the link by e-mail."}
        </p>
      ) : (
        <>
          <p>
            No e-mail was sent. Hand this link to <bdi>{made.email}</bdi> over a channel that you trust. It is
            shown only now, works once, replaces any link that you made for this address before, and ends{" "}
            <When at={made.expires_at} />.
          </p>
          <Line text={made.link} isText />
        </>
      )}
      <CloseEnd close={close} kind="primary">
        Done
      </CloseEnd>
    </Dialog>
  );
}

type RoleChoiceProps = { error: ApiError | undefined; value: Role; set(role: Role): void };

const RoleChoice = ({ error, ...role }: RoleChoiceProps) => (
  <Choice {...role} label="Role" choices={offeredRoles()} errors={error?.fields["role"]} />
);

function Change({ member, close }: { member: Member; close(): void }) {
  const slug = currentSlug.value ?? "";
  const params = { slug, id: member.id };
  const [role, setRole] = useState<Role>(member.role);
  // For a new owner whom another user invited: the control plane asks for the number of the user (OwnerNumber).
  const [userId, setUserId] = useState("");
  const body = { role, ...(userId === "" ? {} : { owner_id: Number(userId) }) };
  const form = useSending(request(membersApi.update, params, body), membersPath(slug), close);
  return (
    <FormDialog
      title={`Role of ${member.email}`}
      close={close}
      action="Change the role"
      form={form}
      disabled={role === member.role}
      shown={["role"]}
      command={["member", "update", slug, member.email, "--role", role]}
    >
      <RoleChoice error={form.error} value={role} set={setRole} />
      <OwnerNumber error={form.error} value={userId} set={setUserId} />
      {member.role === "member" ? null : (
        <p class="quiet">
          Tokens, nodes and webhooks of a former administrator stay; their open invitations end.
        </p>
      )}
    </FormDialog>
  );
}

function Sessions({ member, close }: { member: Member; close(): void }) {
  const slug = currentSlug.value ?? "";
  const params = { slug, id: member.id };
  return (
    <SessionsDialog
      email={member.email}
      list={(...query) => apiPath(memberSessionsApi.list, params, ...query)}
      endOne={(session) => call(memberSessionsApi.delete, { ...params, session })}
      endAll={() => call(memberSessionsApi.deleteAll, params)}
      command={["session", "list", "--org", slug, "--user", member.email]}
      close={close}
    />
  );
}

function Remove({ member, close }: { member: Member; close(): void }) {
  const slug = currentSlug.value ?? "";
  const { fields, body, flags } = useEnding(member.node_count);
  const isInvited = member.state === "invited";
  const params = { slug, id: member.id };
  const query = {
    revoke_nodes: `${body.revoke_nodes}`,
    revoke_tokens: `${body.revoke_tokens}`,
    report: "true",
  } as const;
  const isSelf = member.user_id === me.value?.id;
  return (
    <Confirm
      title={isInvited ? `Withdraw the invitation of ${member.email}?` : `Remove ${member.email}?`}
      action={isInvited ? "Withdraw the invitation" : `Remove ${member.email}`}
      effect={
        <>
          <p>
            {isInvited
              ? "The link stops working. You can invite the address again."
              : `${isSelf ? "This is you: you lose" : "The user loses"} all access to ${slug} within seconds, and open invitations that ${isSelf ? "you" : "they"} sent end. An invitation brings ${isSelf ? "you" : "them"} back.`}
          </p>
          {isInvited ? null : (
            <>
              <p>
                The user can still sign in to this control plane, and to other organizations.{" "}
                {me.value?.is_staff === true ? (
                  <>
                    To end that, disable the user under <a href={pathOf("-", "users")}>Users</a>.
                  </>
                ) : (
                  "Staff of the control plane can disable the user."
                )}
              </p>
              {fields}
            </>
          )}
        </>
      }
      changes={membersPath(slug)}
      run={(report) => {
        // Nothing else on the page tells what the user can still use.
        if (!isInvited && report !== undefined)
          tell(removedWords(member.email, report, me.value?.is_staff === true));
      }}
      close={close}
      command={["member", "delete", slug, member.email, ...flags]}
      sends={request(membersApi.delete, params, query)}
    />
  );
}

const memberDialogs = { change: Change, sessions: Sessions, remove: Remove };
