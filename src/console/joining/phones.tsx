// Site files for the Nebula app on phones. The page makes the key, and completes the file that the control plane signed.

import { organizationsApi } from "../../api/organizations.ts";
import { registrationsApi } from "../../api/registrations.ts";
import { nodesApi } from "../../api/nodes.ts";
import { apiPath } from "../../api/endpoint.ts";
import { useEffect, useState } from "preact/hooks";
import type { Node } from "../../protocol/node.ts";
import { call } from "../contact/api.ts";
import { partsOf, sentencesOf } from "../words/field-parts.ts";
import { mayAddOwn, mayAdminister, currentSlug } from "../contact/me.ts";
import { isImportDue } from "../nodes/states.ts";
import { importOf, importPhone, putImport, type PhoneImport } from "./phone-imports.ts";
import { whyNoKey } from "./phone-key.ts";
import { registrationsPath } from "./registrations.ts";
import { refresh, useList } from "../contact/resource.ts";
import { pathOf } from "../frame/router.ts";
import { Button } from "../ui/button.tsx";
import { Sign } from "../ui/icon.tsx";
import { Choice, FormFailure, Text, useAction } from "../ui/form.tsx";
import { Confirm } from "../ui/dialog.tsx";
import { Page, Panel, Why } from "../ui/page.tsx";
import { Empty, When } from "../ui/parts.tsx";
import { download } from "../ui/lists/tools.tsx";
import { GroupsField } from "../pages/groups-field.tsx";
import { PhoneFile } from "./phone-file.tsx";

const systems = [
  ["android", "Android"],
  ["ios", "iPhone or iPad"],
] as const;

export function Phones() {
  const slug = currentSlug.value ?? "";
  const held = importOf(slug);
  const [chosenPhone, setPhone] = useState<Node>();
  const [whyNot, setWhyNot] = useState<string>();
  const [isLeaving, setLeaving] = useState(false);
  useEffect(() => void whyNoKey().then(setWhyNot), []);
  const phone = held?.phone ?? chosenPhone;
  const end = () => {
    putImport(slug, undefined);
    setPhone(undefined);
  };
  return (
    <Page title="Phones" above={<a href={pathOf(slug, "nodes")}>Nodes</a>}>
      {content()}
      {isLeaving ? (
        <Confirm
          title="Give up the key?"
          action="Give it up"
          effect="You have not downloaded the file. Its key is only in this tab and is lost then: the phone has to be added or imported again."
          run={async () => end()}
          close={() => setLeaving(false)}
        />
      ) : null}
    </Page>
  );

  function content() {
    if (!mayAddOwn.value)
      return (
        <Empty text="The organization does not let you add nodes of your own. An administrator can allow it in the settings." />
      );
    if (whyNot !== undefined)
      return (
        <div role="alert">
          <Why title={whyNot} />
        </div>
      );
    // The control plane has signed. `file` is undefined once it was downloaded.
    if (held?.made !== undefined) {
      const { node, file } = held.made;
      return (
        <PhoneFile
          node={node}
          isSaved={file === undefined}
          save={() => {
            download(`${slug}-${node.name}.yml`, file ?? "", "application/yaml");
            putImport(slug, { ...held, made: { node, file: undefined } });
          }}
          done={() => (file === undefined ? end() : setLeaving(true))}
          importAgain={(changed: Node) => {
            end();
            setPhone(changed);
          }}
        />
      );
    }
    return (
      <div class="start">
        <PhoneForm
          key={phone?.id}
          phone={phone}
          held={held}
          cancel={held?.key === undefined ? end : () => setLeaving(true)}
        />
        <div class="stackd">
          {phone === undefined ? <Own slug={slug} choose={setPhone} /> : null}
          <Panel title="What leaves this browser" hasRoom={true}>
            <p class="quiet">
              Its public key, name and groups. The private key is made here, and leaves only in the file that
              the app Mobile Nebula of Defined Networking imports.
            </p>
          </Panel>
        </div>
      </div>
    );
  }
}

function Own({ slug, choose }: { slug: string; choose(phone: Node): void }) {
  const { data = [] } = useList(apiPath(nodesApi.list, { slug }, { page_size: "1000", owner: "me" }));
  const phones = data.filter(({ phone, state }) => phone != null && state === "active");
  if (phones.length === 0) return null;
  return (
    <Panel title="Your phones">
      <ul class="lines recent">
        {phones.map((node) => (
          <li key={node.id}>
            <Sign name={isImportDue(node.phone) ? "need" : "on"} />
            <span>
              <a class="name" href={pathOf(slug, "nodes", node.id)}>
                <bdi>{node.name}</bdi>
              </a>{" "}
              {isImportDue(node.phone) ? (
                <span class="is-bad">import it again now</span>
              ) : (
                <span class="quiet">
                  import it again: <When at={node.phone?.import_by ?? null} />
                </span>
              )}
            </span>
            <Button isSmall={true} onClick={() => choose(node)}>
              Import again
            </Button>
          </li>
        ))}
      </ul>
    </Panel>
  );
}

/** `phone`: the one to import again; undefined for a new one. `held`: the import that this tab has begun and not ended, with its key. */
type FormProps = { phone: Node | undefined; held: PhoneImport | undefined; cancel(): void };

function PhoneForm({ phone, held, cancel }: FormProps) {
  const slug = currentSlug.value ?? "";
  const [name, setName] = useState(held?.name ?? "");
  const [groups, setGroups] = useState(held?.groups.join(", ") ?? "");
  const [system, setSystem] = useState<PhoneImport["system"]>(
    held?.system ?? phone?.phone?.system ?? "android",
  );
  const { key, isWaiting = false, error } = held ?? {};
  // Without its error: importPhone puts refusals into `held`.
  const { submit } = useAction(() =>
    importPhone(slug, {
      phone,
      system,
      name: name.trim().toLowerCase().replace(/\s+/g, "-"),
      groups: partsOf(groups),
    }),
  );
  return (
    <Panel
      title={
        phone === undefined ? (
          "Add a phone"
        ) : (
          <>
            Import <bdi>{phone.name}</bdi> again
          </>
        )
      }
      hasRoom={true}
    >
      {phone === undefined ? null : (
        <p>It keeps its name and address. What it has now stops working at once.</p>
      )}
      <form class="w440" onSubmit={submit}>
        {phone === undefined ? (
          <Text
            label="Name"
            help="Small letters, digits and -."
            errors={error?.fields["name"]}
            value={name}
            set={setName}
            control={{
              name: "name",
              required: true,
              autocapitalize: "none",
              spellcheck: false,
              readonly: key !== undefined,
            }}
          />
        ) : null}
        {phone === undefined && mayAdminister.value ? (
          <GroupsField
            label="Groups"
            errors={sentencesOf(error?.fields, "groups", partsOf(groups))}
            value={groups}
            set={setGroups}
          />
        ) : null}
        <Choice label="System" value={system} set={setSystem} choices={systems} />
        <FormFailure error={error} shown={["name", "groups"]} />
        <div role="status">
          {key === undefined || !isWaiting ? null : (
            <Waits slug={slug} name={held?.name || phone?.name} sha256={key.sha256} />
          )}
        </div>
        <div class="actions">
          <button class="primary" disabled={key !== undefined}>
            Make the file
          </button>
          {phone === undefined && key === undefined ? null : (
            <button type="button" onClick={cancel}>
              Cancel
            </button>
          )}
        </div>
      </form>
    </Panel>
  );
}

/** Users who may approve it do so here. */
function Waits({ slug, name, sha256 }: { slug: string; name: string | undefined; sha256: string }) {
  // An empty path reads nothing.
  const { data = [] } = useList(mayAdminister.value ? registrationsPath(slug) : "");
  const request = data.find(({ key_sha256 }) => key_sha256 === sha256);
  const { error, isRunning, run } = useAction(async () => {
    if (request !== undefined) await call(registrationsApi.approve, { slug, id: request.id });
    await refresh(apiPath(organizationsApi.retrieve, { slug }));
  });
  return (
    <>
      <p>
        <bdi>{name}</bdi> waits for an administrator's approval, with key <code>{sha256.slice(0, 16)}</code>.
        Keep this tab open: only it has the key. Other pages of the console can be opened in it.
      </p>
      {request === undefined ? null : (
        <p>
          <button type="button" class="primary" disabled={isRunning} onClick={run}>
            Approve it
          </button>
        </p>
      )}
      <FormFailure error={error} />
    </>
  );
}
