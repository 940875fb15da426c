"""Flags of JVMs that live for a test or a test run, where no speed is measured.

They never earn back what the second compiler costs: half the CPU of a start. To verify classes costs another
fifteenth, Spark's, RocketMQ's and our drivers' alike.
"""

SHORT_LIVED_JVM = (
    "-XX:TieredStopAtLevel=1",
    "-XX:+UseSerialGC",
    "-XX:+UnlockDiagnosticVMOptions",
    "-XX:-BytecodeVerificationRemote",
)
