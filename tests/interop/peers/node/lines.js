'use strict';

// Requests and answers as JSON lines; see tests/interop/driver.py for the other end.
// A line in is {"id", "do", ...}; a line out is {"id", "ok"}, {"id", "error"} or, unasked, {"event", ...}.

const readline = require('readline');

const out = process.stdout.write.bind(process.stdout);
// What a library prints must not get between our lines.
process.stdout.write = process.stderr.write.bind(process.stderr);

function say(line) {
  out(JSON.stringify(line) + '\n');
}

async function answer(commands, request) {
  const command = commands[request.do];
  try {
    if (!command) {
      throw new Error(`the Node driver has no command ${request.do}`);
    }
    const value = await command(request);
    say({ id: request.id, ok: value === undefined ? null : value });
  } catch (error) {
    console.error(error);
    const code = typeof error.code === 'number' ? error.code : null;
    say({ id: request.id, error: { class: error.name, code, message: error.message } });
  }
}

function serve(commands) {
  const lines = readline.createInterface({ input: process.stdin });
  lines.on('line', line => { answer(commands, JSON.parse(line)); });
  lines.on('close', () => process.exit(0));
  say({ event: 'ready' });
}

module.exports = { say, serve };
