// The package as a person has it: packed and installed by npm, without a network, and used against a
// real server: node --test, with npm on PATH and the programs in NEXUS_BIN.

import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { Server } from "./server.mjs";

const folder = fileURLToPath(new URL("..", import.meta.url));

const PROGRAM = `
import { NexusClient } from "nexus-client";

const [url, home] = process.argv.slice(2);
const server = new NexusClient({ url, home });
await server.createAgent({ agent_id: "worker" });
const worker = server.agent("worker");
await worker.send({ content: "My name is Alice" });
console.log((await worker.send({ content: "What is my name?" })).content);
`;

test("the package is packed, installed and used", { timeout: 100_000 }, async (t) => {
  const work = mkdtempSync(join(tmpdir(), "nexus-package-"));
  t.after(() => rmSync(work, { recursive: true }));
  const npm = (cwd, ...args) => execFileSync("npm", args, {
    cwd,
    encoding: "utf8",
    env: {
      PATH: process.env.PATH, HOME: work, npm_config_cache: join(work, "cache"), npm_config_offline: "true",
      npm_config_registry: "http://127.0.0.1:1/", npm_config_audit: "false", npm_config_fund: "false", npm_config_update_notifier: "false",
    },
  });
  const [packed] = JSON.parse(npm(folder, "pack", "--json", "--pack-destination", work));
  const { files } = JSON.parse(readFileSync(join(folder, "package.json"), "utf8"));
  assert.deepEqual(packed.files.map((file) => file.path).sort(), [...files, "LICENSE", "package.json"].sort());

  const project = join(work, "project");
  mkdirSync(project);
  writeFileSync(join(project, "package.json"), JSON.stringify({ name: "consumer", private: true, type: "module" }));
  writeFileSync(join(project, "main.js"), PROGRAM);
  npm(project, "install", join(work, packed.filename));

  const server = await new Server().start();
  t.after(() => server.close());
  const said = execFileSync(process.execPath, ["main.js", server.url, server.home], { cwd: project, encoding: "utf8" });
  assert.equal(said, "Your name is Alice.\n");
});
