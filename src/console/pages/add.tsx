// Adds a machine: choose what it is, paste one line with the join key there, and watch it arrive.

import { organizationsApi, type Organization } from "../../api/organizations.ts";
import { countOf } from "../../base/duration.ts";
import { registrationTokensApi } from "../../api/tokens.ts";
import { apiPath, type SentOf } from "../../api/endpoint.ts";
import { useState } from "preact/hooks";
import { call } from "../api.ts";
import { useLog } from "../events.ts";
import { partsOf, sentencesOf } from "../field-parts.ts";
import { subjectOf } from "../activity.ts";
import { mayAddOwn, mayAdminister, slug } from "../me.ts";
import { registrationsPath } from "../registrations.ts";
import { useList, useResource } from "../resource.ts";
import { nameOfKey } from "../token-words.ts";
import { pathOf } from "../router.ts";
import { Check, FormFailure, Text, useAction } from "../ui/form.tsx";
import { dated, Empty, FromTerminal, Line, State } from "../ui/parts.tsx";
import { Qr } from "../ui/qr.tsx";
import { GroupsField } from "./groups-field.tsx";

type Token = SentOf<typeof registrationTokensApi.create>;

/** Which new machines wait for an administrator. */
const useApproval = (own: string) =>
  useResource(apiPath(organizationsApi.retrieve, { slug: own })).data?.node_approval ?? "none";

const mustWait = (approval: ReturnType<typeof useApproval>, isApproved: boolean) =>
  approval === "all" || (approval === "unapproved" && !isApproved);

export function AddMachine() {
  const own = slug.value ?? "";
  const [token, setToken] = useState<Token | undefined>(undefined);
  if (!mayAdminister.value && !mayAddOwn.value)
    return (
      <>
        <h1>Add a machine</h1>
        <Empty text="Administrators of the organization add machines." />
      </>
    );
  return (
    <>
      <p>
        <a href={pathOf(own, "machines")}>Machines</a>
      </p>
      <h1>Add a machine</h1>
      {mayAddOwn.value && token === undefined && (
        <p>
          For a phone:{" "}
          <a class="button" href={pathOf(own, "phones")}>
            Add a phone
          </a>
        </p>
      )}
      {mayAdminister.value &&
        (token === undefined ? (
          <Choices made={setToken} />
        ) : (
          <Waiting token={token} again={() => setToken(undefined)} />
        ))}
      {mayAddOwn.value && token === undefined && <OwnMachine />}
    </>
  );
}

/** Without a key: the user confirms the machine on the page `join`. */
function OwnMachine() {
  return (
    <>
      <h2>A machine of your own</h2>
      <p>
        It needs no key: type this there, open the address that it shows, and sign in. The machine will be
        yours.
      </p>
      <Line text={`sudo agent up ${location.origin} --org ${slug.value ?? ""}`} />
    </>
  );
}

function Choices({ made }: { made: (token: Token) => void }) {
  const own = slug.value ?? "";
  const approval = useApproval(own);
  const [name, setName] = useState("");
  const [isApproved, approve] = useState(false);
  const [groups, setGroups] = useState("");
  const [uses, setUses] = useState("1");
  const [expires, setExpires] = useState("1h");
  const [isLighthouse, setLighthouse] = useState(false);
  const asked = partsOf(groups);
  const body = {
    ...(name.trim() === "" ? {} : { name: name.trim() }),
    uses: Number(uses),
    expires_in: expires,
    groups: asked,
    is_lighthouse: isLighthouse,
    ...(isApproved ? { approved: true } : {}),
  };
  const { error, isRunning, submit } = useAction(async () => {
    made(await call(registrationTokensApi.create, { slug: own }, body));
  });
  const words = [
    "token",
    "create",
    own,
    ...(body.name === undefined ? [] : ["--name", body.name]),
    ...asked.flatMap((group) => ["--group", group]),
    ...(uses === "1" ? [] : ["--uses", uses]),
    "--expires",
    expires,
    ...(isLighthouse ? ["--lighthouse"] : []),
    ...(isApproved ? ["--approved"] : []),
  ];
  return (
    <form onSubmit={submit} class="narrow">
      <GroupsField
        label="Groups"
        errors={sentencesOf(error?.fields, "groups", asked)}
        value={groups}
        set={setGroups}
      />
      <Text
        label="How many machines"
        errors={error?.fields["uses"]}
        value={uses}
        set={setUses}
        control={{ type: "number", min: 1, max: 1_000_000, required: true }}
      />
      <Text
        label="The join key is valid for"
        help="Such as 1h, 48h or 7d."
        errors={error?.fields["expires_in"]}
        value={expires}
        set={setExpires}
        control={{ required: true }}
      />
      <Check
        label="It is a lighthouse: a machine with a public address, through which the others find each other"
        checked={isLighthouse}
        set={setLighthouse}
      />
      <NewMachines {...{ node_approval: approval, isApproved, approve }} />
      <Text
        label="Name of the join key"
        help="Optional."
        errors={error?.fields["name"]}
        value={name}
        set={setName}
        control={{ maxlength: 100 }}
      />
      <FormFailure error={error} shown={["groups", "uses", "expires_in", "name"]} />
      <div class="actions">
        <button class="primary" disabled={isRunning}>
          Make the join key
        </button>
      </div>
      <FromTerminal
        command={words}
        call={["POST", apiPath(registrationTokensApi.create, { slug: own }), body]}
      />
    </form>
  );
}

type NewMachinesProps = Pick<Organization, "node_approval"> & {
  isApproved: boolean;
  approve(isApproved: boolean): void;
};

/** Shown before the key is created: machines that use it may have to wait. */
function NewMachines({ node_approval: approval, isApproved, approve }: NewMachinesProps) {
  return (
    <>
      {approval === "unapproved" ? (
        <Check
          label="They need no approval: whoever has the join key can join at once"
          checked={isApproved}
          set={approve}
        />
      ) : null}
      {mustWait(approval, isApproved) ? (
        <p class="notice">Each machine then waits until an administrator approves it.</p>
      ) : null}
    </>
  );
}

/** Roles and groups that the key gives. */
function madeBy({ uses, groups, is_lighthouse }: Token): string {
  const count = countOf(uses, "machine");
  const into = groups.length === 0 ? "in no group" : `in ${groups.join(", ")}`;
  return `${count}, ${into}${is_lighthouse ? ", as a lighthouse" : ""}`;
}

/** Events of one request. */
const atOnce = 200;

function Waiting({ token, again }: { token: Token; again(): void }) {
  const own = slug.value ?? "";
  const approval = useApproval(own);
  const waits = mustWait(approval, token.approved);
  const { data = [] } = useList(registrationsPath(own));
  const asking = data.filter(({ registration_token_id: id }) => id === token.id);
  const made = Date.parse(token.created_at);
  // Reads the log, because the stream of events may just be closed.
  const arrived = useLog(own, atOnce)
    .events.filter(({ type, at }) => type === "node.registered" && Date.parse(at) >= made)
    .toReversed();
  return (
    <>
      <p>
        For{" "}
        <strong>
          <bdi>{madeBy(token)}</bdi>
        </strong>
        . The join key is shown only now, and ends {dated(Date.parse(token.expires_at))}. It is “
        <bdi>{nameOfKey(token)}</bdi>” under <a href={pathOf(own, "tokens")}>Tokens</a>, where it can be
        revoked.
      </p>
      {waits ? (
        <p class="notice">
          Each machine waits for the approval of an administrator:{" "}
          <a href={pathOf(own, "machines", "waiting")}>Approval</a>
        </p>
      ) : null}
      <p class="quiet">
        On a machine that does not have the program yet, this installs it (Linux and macOS):
      </p>
      <Line text={`curl -fsSL ${location.origin}/releases/install | sh`} />
      <p>Then this joins:</p>
      <Line text={`sudo agent up ${token.join_key}`} />
      <details>
        <summary>Without the key in the history of the shell</summary>
        <Line text="sudo agent up" />
        <p>It asks for this key:</p>
        <Line text={token.join_key} />
      </details>
      <details>
        <summary>As a QR code</summary>
        <p class="quiet">For a device with a camera. It holds the same key: keep it as secret.</p>
        <Qr text={token.join_key} label="The join key as a QR code" />
      </details>
      <details>
        <summary>Without agent up, for scripts</summary>
        <Line text={token.command} />
      </details>
      <div role="status">
        {arrived.length + asking.length === 0 ? (
          <p class="quiet">Waiting for the machine.</p>
        ) : (
          <ul class="plain-list">
            {asking.map(({ id, name }) => (
              <li key={id}>
                <State
                  name="limited"
                  word={
                    <>
                      <bdi>{name}</bdi> asks:
                    </>
                  }
                />{" "}
                <a href={pathOf(own, "machines", "waiting")}>compare the key that it shows, and approve</a>
              </li>
            ))}
            {arrived.map((event) => (
              <li key={event.id}>
                <State name="online" word="joined" />{" "}
                <a href={pathOf(own, "machines", event.subject.replace("node/", ""))}>
                  <bdi>{subjectOf(event)}</bdi>
                </a>
              </li>
            ))}
          </ul>
        )}
      </div>
      <p>
        <button type="button" onClick={again}>
          Make another join key
        </button>
      </p>
    </>
  );
}
