"""Sessions whose statements may wait, as a test sees them from outside."""

import threading


class Patient:
    """`_run`, which the test has, executes a statement and leaves in `answer` what came of it."""

    thread, answer = None, None

    def run(self, statement, patience):
        if self.thread:
            # What has just been let go takes a moment to say so.
            self.thread.join(patience)
            if self.thread.is_alive():
                return "waits for its last answer"
        self.thread = threading.Thread(target=self._run, args=(statement,), daemon=True)
        self.thread.start()
        self.thread.join(patience)
        return "waits" if self.thread.is_alive() else self.answer

    def settle(self, kill):
        """Ends a statement that still runs: a connection that is closed under its thread raises there what no test expects."""
        if self.thread and self.thread.is_alive():
            kill()
            self.thread.join(120)

    def wait(self):
        self.thread.join(120)
        return "still waits" if self.thread.is_alive() else self.answer
